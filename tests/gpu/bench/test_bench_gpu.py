"""Arms on a CUDA device: CUDA graphs pass the check, launches are counted, a device without memory is a row."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
ROOT = Path(__file__).parents[3]

PROGRAM = """
import torch

def forward():
    model = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.GELU(), torch.nn.Linear(512, 512)).cuda()
    return model, torch.randn(256, 512, device="cuda")

def three_kernels():
    x = torch.randn(1 << 22, device="cuda")
    return lambda x: ((x + 1) * 2).sin(), x

def half_loss():
    x = torch.randn(64, 100, device="cuda", requires_grad=True)
    target = torch.randint(0, 100, (64,), device="cuda")
    def loss(x):
        with torch.autocast("cuda", dtype=torch.float16):
            return torch.nn.functional.cross_entropy(x.half() if torch.compiler.is_compiling() else x, target).to(
                torch.float16 if torch.compiler.is_compiling() else torch.float32)
    return loss, x

def too_large():
    def allocate(x):
        return torch.zeros(1 << 45, device="cuda") if torch.compiler.is_compiling() else x * 2
    return allocate, torch.randn(64, device="cuda")

def large():
    return lambda x: (x * 2, x + 1), torch.randn(40 << 20, device="cuda")

kept = []
def stale(graph, inputs):
    def run(*args):
        outputs = graph(*args)
        kept or kept.append([value.detach().clone() for value in outputs])
        return tuple(kept[0])
    return run
import torch._dynamo
torch._dynamo.register_backend(stale)
"""


def bench(folder, name, arms):
    program = folder / "program.py"
    program.write_text(PROGRAM)
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'cli'}"}
    command = [sys.executable, "-m", "dynadiag", "bench", "--fn", f"{program}:{name}", "--arms", arms, "--max-time", "2", "--json"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=400)
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


def by_name(items, key="name"):
    return {item[key]: item for item in items}


def test_cuda_graphs_pass_and_a_stale_output_does_not(tmp_path):
    document = bench(tmp_path, "forward", "eager,default,reduce-overhead,stale")
    checks = {name: item["status"] for name, item in by_name(document["correctness"], "arm").items()}
    assert checks == {"eager": "PASS", "default": "PASS", "reduce-overhead": "PASS", "stale": "WRONG"}, document["correctness"]
    arms = by_name(document["arms"])
    assert arms["eager"]["device_samples_ms"] and arms["eager"]["peak_bytes"] > 0
    assert 0 < arms["eager"]["busy_share"] <= 1.1


def test_results_that_are_kept_on_the_cpu_are_compared(tmp_path):
    document = bench(tmp_path, "large", "eager,default,stale")
    checks = {name: item["status"] for name, item in by_name(document["correctness"], "arm").items()}
    assert checks == {"eager": "PASS", "default": "PASS", "stale": "WRONG"}, document["correctness"]


def test_launches_are_counted(tmp_path):
    arms = by_name(bench(tmp_path, "three_kernels", "eager,default")["arms"])
    assert arms["eager"]["kernels"] == 3 and arms["default"]["kernels"] == 1


def test_a_changed_dtype_is_wrong(tmp_path):
    document = bench(tmp_path, "half_loss", "eager,aot_eager")
    assert by_name(document["correctness"], "arm")["aot_eager"]["status"] == "DTYPE_CHANGED"
    assert document["comparisons"][0]["verdict"] == "WRONG"


def test_a_device_without_memory_is_a_row(tmp_path):
    document = bench(tmp_path, "too_large", "eager,backend:eager,aot_eager")
    arms = by_name(document["arms"])
    assert arms["eager"]["status"] == "ok" and arms["backend:eager"]["status"] == "oom"
