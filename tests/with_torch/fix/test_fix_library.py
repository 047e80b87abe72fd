"""Causes in an installed package: what replaces its functions has the results of eager, in one graph."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from dynadiag.changes.change import Candidate
from dynadiag.changes.edits import placed
from dynadiag.changes.number_loops import with_numbers
from dynadiag.changes.operator import as_operator
from dynadiag.fix.patch_module import patch_module
from dynadiag.fix.texts import changed

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
RUN = """import library
import torch


def whole():
    block = library.Block()
    compiled = torch.compile(block, backend="aot_eager", fullgraph=True, dynamic=False)
    for number in range(3):
        x = torch.randn(4 + number, 3) + number
        assert torch.equal(compiled(x), block(x)), number


try:
    whole()
except torch._dynamo.exc.TorchDynamoException:
    print("breaks")
torch._dynamo.reset()
import dynadiag_patches
whole()
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

    done = subprocess.run([sys.executable, "-c", RUN], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.stdout == "breaks\nthe same\n", done.stderr
