"""What `explain` tells of CUDA graphs and streams, against what torch did (its own debug log counts the recordings)."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
ROOT = Path(__file__).parents[2]

SIZES = """
import torch

@torch.compile(mode="reduce-overhead")
def f(x):
    return (x * 2).relu().sum()

with torch.no_grad():
    for _ in range({epochs}):
        for n in range(8, 14):
            torch.compiler.cudagraph_mark_step_begin()
            f(torch.ones(n, device="cuda"))
"""
WRITTEN = """
import torch

@torch.compile(mode="reduce-overhead", dynamic=True)
def f(cache, x, start):
    cache[start : start + x.shape[0]] = x
    return cache.sum()

@torch.compile
def plain(cache, x):
    cache.add_(x)
    return cache * 2

cache = torch.zeros(64, 8, device="cuda")
with torch.no_grad():
    for start in range(2, 8):
        torch.compiler.cudagraph_mark_step_begin()
        f(cache, torch.ones(2, 8, device="cuda"), start)
        plain(cache, torch.ones(64, 8, device="cuda"))
"""
STREAMS = """
import torch

s, w = torch.cuda.Stream(), torch.randn(256, 256, device="cuda")

@torch.compile
def f(x):
    now = torch.cuda.current_stream()
    s.wait_stream(now)
    with torch.cuda.stream(s):
        a = torch.relu(x @ w)
    b = torch.tanh(x @ w)
    now.wait_stream(s)
    return a + b

with torch.no_grad():
    for _ in range(3):
        f(w)
"""
OVERWRITTEN = """
import torch

f = torch.compile(lambda x: (x * 2).relu(), mode="reduce-overhead")
with torch.no_grad():
    state = f(torch.ones(8, device="cuda")){copy}
    for _ in range(4):
        torch.compiler.cudagraph_mark_step_begin()
        state = f(state){copy}
"""


def explained(folder, program):
    """The findings by code, and how many CUDA graphs torch recorded."""
    (folder / "program.py").write_text(program)
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'cli'}", "TORCH_LOGS": "cudagraphs"}
    environment["TORCHINDUCTOR_CACHE_DIR"] = str(folder / "cache")
    start = "from dynadiag_cli.main import main; main()"
    command = [sys.executable, "-c", start, "explain", "--out", "run", "--format", "json", "-o", "report.json", "program.py"]
    ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=240, check=False)
    found = json.loads((folder / "report.json").read_text())["findings"]
    return {one["code"]: one for one in found}, len(re.findall(r"Recording function=", ran.stderr)), ran.returncode


def test_sizes_that_are_met_once_are_never_recorded(tmp_path):
    found, recorded, _ = explained(tmp_path, SIZES.format(epochs=1))
    assert recorded == 0
    assert "DC06" not in found and "DC07" in found


def test_each_recording_after_the_first_is_counted(tmp_path):
    found, recorded, _ = explained(tmp_path, SIZES.format(epochs=3))
    assert recorded > 1 and found["DC06"]["cost"]["value"] == recorded - 1
    assert "DC07" not in found


def test_a_graph_that_torch_skipped_for_a_write_is_told_as_that_alone(tmp_path):
    found, recorded, _ = explained(tmp_path, WRITTEN)
    assert recorded == 0
    assert not {"DC06", "DC07"} & set(found)
    report = json.loads((tmp_path / "report.json").read_text())
    written = {one["title"]: one["severity"] for one in report["findings"] if one["code"] == "DM02"}
    assert written == {
        "Written input without a fixed address: CUDA graphs were skipped (cache)": "warning",
        "Written input without a fixed address: CUDA graphs would be skipped (cache)": "note",
    }


@pytest.mark.skipif(torch.__version__ >= "2.15", reason="Inductor of torch 2.15 enters streams")
def test_work_on_another_stream_is_told(tmp_path):
    found, _, _ = explained(tmp_path, STREAMS)
    assert found["DC08"]["cost"]["value"] == 2 and found["DC08"]["where"]["line"] == 11


def test_an_overwritten_output_has_its_cure_and_the_cure_works(tmp_path):
    found, _, status = explained(tmp_path, OVERWRITTEN.format(copy=""))
    assert status == 1 and found["DF11"]["fix"][0]["after"] == "state = f(state).clone()"
    (tmp_path / "cured").mkdir()
    found, _, status = explained(tmp_path / "cured", OVERWRITTEN.format(copy=".clone()"))
    assert status == 0 and "DF11" not in found
