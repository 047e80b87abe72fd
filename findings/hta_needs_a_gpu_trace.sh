#!/usr/bin/env bash
# HolisticTraceAnalysis 0.5.0, torch 2.15.0.
# Guess: HTA reads a trace of a CPU run and reports no GPU time.
# Seen:  the trace parses, then get_temporal_breakdown raises IndexError from pandas ("single positional indexer is out-of-bounds"), which
#        says nothing about the missing GPU events. torch.profiler names the compiled region in the same trace.
# Met by: trying HTA on a laptop or in CI before the cluster run, and traces recorded without ProfilerActivity.CUDA.
. "$(dirname "$0")/common.sh"
install torch==2.15.0 holistictraceanalysis==0.5.0 numpy==2.4.6
run_program <<'PROGRAM'
import json
import os

import torch
from hta.trace_analysis import TraceAnalysis
from torch.profiler import ProfilerActivity, profile

compiled = torch.compile(lambda x: (x @ x).sin(), backend="aot_eager")
compiled(torch.ones(4, 4))
os.mkdir("traces")
with profile(activities=[ProfilerActivity.CPU]) as profiler:
    compiled(torch.ones(4, 4))
profiler.export_chrome_trace("traces/rank0.json")
with open("traces/rank0.json") as trace:
    assert any("Torch-Compiled Region" in event.get("name", "") for event in json.load(trace)["traceEvents"])
analysis = TraceAnalysis(trace_dir="traces")
try:
    analysis.get_temporal_breakdown(visualize=False)
    raise SystemExit("a breakdown of a CPU trace")
except IndexError as error:
    print("IndexError:", error)
PROGRAM
