"""Verbs that run a program on the GPU many times, in both kinds of private view: its checkpoints and notes are as they were."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
ROOT = Path(__file__).parents[2]
START = "from dynadiag_cli.main import main; main()"

TRAIN = """
import os

import torch

here = os.path.dirname(os.path.abspath(__file__))
state, best = os.path.join(here, "state.pt"), os.path.join(here, "best.pt")
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1)).cuda()
first = 0
if os.path.exists(state):
    saved = torch.load(state)
    model.load_state_dict(saved["model"])
    first = saved["step"]
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def loss_of(x):
    y = model(x)
    if y.abs().max() > 100.0:
        y = y * 0.5
    return y.square().mean()


step = torch.compile(loss_of)
for number in range(first, first + 6):
    optimizer.zero_grad()
    loss = step(torch.randn(32, 64, device="cuda"))
    loss.backward()
    optimizer.step()
    torch.save({"model": model.state_dict(), "step": number + 1}, state + ".part")
    os.replace(state + ".part", state)
    with open("losses.csv", "a") as notes:
        notes.write(f"{number},{loss.item():.4f}\\n")
if not os.path.exists(best) or loss.item() < torch.load(best)["loss"]:
    torch.save({"loss": loss.item()}, best)
print(f"loss {loss.item():.4f}")
"""
FAILING = """
import torch


def no_tanh(graph, inputs):
    if any(node.target in (torch.tanh, "tanh") for node in graph.graph.nodes):
        raise RuntimeError("this back end has no tanh")
    return graph


@torch.compile(backend=no_tanh)
def forward(x, w):
    for _ in range(6):
        x = torch.relu(x @ w) + 1
    return torch.tanh(x).sum()


w = torch.randn(32, 32, device="cuda")
open("started.txt", "a").write("once more\\n")
torch.save(w, "weights.pt")
print(forward(w, w))
"""


def run(folder, kind, *words):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "cli"), os.environ.get("PYTHONPATH", "")))}
    environment |= {"DYNADIAG_FILES": kind} if kind == "undo" else {}
    command = [sys.executable, "-c", START, *words]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=500, check=False)


def facts(folder):
    """All files of the project but our own run directories."""
    return {
        str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes())
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "dynadiag-runs" not in path.parts and "__pycache__" not in path.parts
    }


@pytest.fixture
def project(tmp_path):
    """A folder in which the training has run once."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text(TRAIN)
    subprocess.run([sys.executable, "train.py"], cwd=folder, check=True, timeout=240, capture_output=True)
    assert {"state.pt", "best.pt", "losses.csv"} <= set(facts(folder))
    return folder


KINDS = pytest.mark.parametrize("kind", ["overlay", "undo"])


@KINDS
def test_fix_leaves_checkpoints_as_they_were(project, tmp_path, kind):
    before = facts(project)
    ran = run(project, kind, "fix", "--yes", "--out", str(tmp_path / "run"), "--format", "json", "train.py")
    assert facts(project) == before
    found = json.loads((tmp_path / "run" / "fix.json").read_text())
    assert ran.returncode == 0 and sum(change["proven"] for change in found["changes"]) == 1, ran.stdout[-3000:] + ran.stderr[-3000:]
    assert "torch.where" in (tmp_path / "run" / "fixes.patch").read_text()


@KINDS
def test_bench_of_a_script_leaves_checkpoints_as_they_were(project, tmp_path, kind):
    before = facts(project)
    ran = run(project, kind, "bench", "--max-time", "4", "--out", str(tmp_path / "run"), "--json", "train.py")
    assert facts(project) == before
    found = json.loads(ran.stdout)
    assert {row["status"] for row in found["correctness"]} == {"PASS"}, ran.stdout[-3000:] + ran.stderr[-3000:]


@KINDS
def test_minify_leaves_files_as_they_were(tmp_path, kind):
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "failing.py").write_text(FAILING)
    (folder / "weights.pt").write_bytes(b"of another program")
    before = facts(folder)
    ran = run(folder, kind, "minify", "--out", str(tmp_path / "run"), "failing.py")
    assert facts(folder) == before
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
