"""A run with warm caches tells the same graph breaks, recompilations and lines as the cold one; the caches say which was which."""

import re

import pytest

from dynadiag.passes.find_compile_time import find_compile_time
from dynadiag.trace import load

PROGRAM = """
import torch

def step(x, weight, count):
    \"\"\"Matrix products alone: inductor caches their graphs as any others and needs no C++ compiler for them.\"\"\"
    for _ in range(count):
        x = x @ weight
    print("in")
    return x @ weight.t()

compiled = torch.compile(step, backend="inductor")
weight = torch.ones(4, 4)
for size, count in ((4, 1), (8, 2), (8, 3)):
    x = torch.ones(size, 4, requires_grad=True)
    compiled(x, weight, count).sum().backward()
"""


def told(outcome):
    """Breaks with their user code, reasons of recompilations, and the frames that were compiled from where."""
    breaks = [re.sub(r"0x[0-9a-f]+", "", text) for text in outcome.breaks]
    recompiles = [record.payload for record in outcome.named("recompile_reasons")]
    strings = {record.header["str"][1]: record.header["str"][0] for record in outcome.records if "str" in record.header}
    starts = [record.header["dynamo_start"]["stack"] for record in outcome.records if "dynamo_start" in record.header]
    lines = [[(strings[frame["filename"]], frame["line"]) for frame in stack] for stack in starts]
    return breaks, recompiles, lines


def test_a_warm_run_tells_what_the_cold_one_told(run_here, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    cold, warm = (run_here(PROGRAM, tmp_path / name) for name in ("cold", "warm"))
    assert told(cold) == told(warm)
    assert all(told(cold))
    hits = [record for record in warm.records if re.search(r"cache_hit", record.artifact or "")]
    assert hits, "the second run must have used the cache"
    times = [find_compile_time(load(tmp_path / name)).compile_time for name in ("cold", "warm")]
    for time in times:
        assert time.why is None
        assert sum(time.phases.values()) == pytest.approx(time.total_s)
        assert sum(frame.total_s for frame in time.frames) == pytest.approx(time.total_s)
    assert set(times[0].caches["fx_graph"]) == {"miss"} and times[0].phases["inductor"] > 0
    assert set(times[1].caches["fx_graph"]) == {"hit"}
