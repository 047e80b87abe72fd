"""Causes in an installed package: the patch has a module that replaces its functions, and the package stays as it is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from dynadiag.fix.change import Candidate
from dynadiag.fix.edits import placed
from dynadiag.fix.patch_module import patch_module
from dynadiag.fix.rules.numbers import with_numbers
from dynadiag.fix.rules.operators import as_operator
from dynadiag.fix.texts import changed

ROOT = Path(__file__).parents[3]
LIBRARY = '''import functools
import logging
import warnings

import torch


@functools.lru_cache(None)
def warning_once(self, *words):
    self.warning(*words)


logging.Logger.warning_once = warning_once
logger = logging.getLogger(__name__)


class Block(torch.nn.Module):
    def forward(self, x):
        """Says what is old."""
        logger.warning_once(
            "this is "
            "old"
        )
        warnings.warn(
            "it will go", FutureWarning
        )
        if torch.isinf(x).any() or torch.isnan(x).any():
            high = torch.finfo(x.dtype).max - 1000
            x = torch.clamp(x, min=-high, max=high)
        return x * 2
'''
SCRIPT = """import library
import torch

torch.manual_seed(0)
model = torch.compile(torch.nn.Sequential(library.Block(), torch.nn.Linear(3, 3)), backend="aot_eager")
for number in range(4):
    x = torch.randn(2, 3)
    if number == 2:
        x[0, 0] = float("inf")
    print(number, f"{model(x)[1].sum().item():.4f}")
"""


@pytest.mark.slow
def test_functions_of_a_package_are_replaced_and_the_package_is_not_edited(tmp_path):
    package = tmp_path / "env" / "site-packages" / "library.py"
    package.parent.mkdir(parents=True)
    package.write_text(LIBRARY)
    project = tmp_path / "project"
    project.mkdir()
    (project / "train.py").write_text(SCRIPT)
    subprocess.run(["git", "init", "-q", "."], cwd=project, check=True)
    path = os.pathsep.join(map(str, (package.parent, ROOT, ROOT / "cli")))

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONPATH": path}
        return subprocess.run([sys.executable, *words], cwd=project, capture_output=True, text=True, env=environment, timeout=600)

    done = run("-m", "dynadiag", "fix", "--out", "run", "train.py")
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads((project / "run" / "fix.json").read_text())
    assert {one["slug"] for one in told["changes"] if one["proven"]} == {"log-while-tracing", "warn-while-tracing", "branch-select"}
    assert told["after"]["graph_break_events"] == 0 < told["before"]["graph_break_events"]
    before = run("train.py")
    subprocess.run(["git", "apply", "run/fixes.patch"], cwd=project, check=True)
    assert (project / "train.py").read_text().startswith("import dynadiag_patches")
    after = run("train.py")
    assert after.stdout == before.stdout
    assert set(after.stderr.splitlines()) == set(before.stderr.splitlines())
    assert [after.stderr.count(words) for words in ("this is old", "library.py:24: FutureWarning: it will go")] == [1, 1]
    assert package.read_text() == LIBRARY
    package.write_text(LIBRARY.replace("x * 2", "x * 3"))
    assert "library.Block.forward is not the one that dynadiag_patches was made for" in run("train.py").stderr


LOOPS = """import torch


def reach(x):
    marks = torch.nonzero(x.amax(dim=1) > 1)
    found = torch.zeros(x.shape, device=x.device)
    for i in range(marks.shape[0]):
        found[: marks[i, 0] + 1] += 1
    return found


def cells(sizes):
    return torch.cat([torch.zeros(0), *make(sizes)])


def make(sizes):
    found = []
    for height, width in sizes:
        found.append(torch.arange(height * width) / sizes.sum())
    return found


class Block(torch.nn.Module):
    def forward(self, x):
        pairs = [x.shape, (2, 2)]
        sizes = torch.tensor(pairs, dtype=torch.long)
        return reach(x) + cells(sizes).sum()
"""
RUN = """import sys

{first}
import library
import torch

block = library.Block()
compiled = torch.compile(block, backend="aot_eager", fullgraph={whole}, dynamic=False)
for number in range(3):
    x = torch.randn(4 + number, 3) + number
    assert torch.equal(compiled(x), block(x)), number
print("the same")
"""


@pytest.mark.skipif(not hasattr(torch.Tag, "cudagraph_unsafe"), reason="the rule needs torch 2.9")
def test_an_operator_and_numbers_beside_a_tensor_are_put_into_a_package(tmp_path):
    """A loop whose turns are in the data, and one over sizes: whole in one graph, with the results of eager."""
    (tmp_path / "library.py").write_text(LOOPS)
    file, rows = str(tmp_path / "library.py"), LOOPS.splitlines()
    rules = ((as_operator, "found[: marks"), (with_numbers, "found.append"))
    changes = []
    for number, (rule, begin) in enumerate(rules):
        edits = rule(file, LOOPS, next(at for at, row in enumerate(rows, start=1) if row.strip().startswith(begin)))
        spans = [placed(LOOPS, edit) for edit in edits]
        changes.append(Candidate(id=f"x{number}", slug="s", text="", edits=tuple(edits), spans=tuple(spans), cures=("f",)))
    originals = {file: LOOPS}
    (tmp_path / "dynadiag_patches.py").write_text(patch_module(originals, changed(originals, changes), {file: "library"}, changes))

    def run(first: str, whole: bool) -> subprocess.CompletedProcess[str]:
        words = [sys.executable, "-c", RUN.format(first=first, whole=whole)]
        return subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=300)

    assert run("import dynadiag_patches", True).stdout == "the same\n", run("import dynadiag_patches", True).stderr
    assert run("", True).returncode != 0
