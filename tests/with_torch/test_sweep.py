"""A sweep over a function by two verbs, in real processes with torch."""

from __future__ import annotations

import pytest

from dynadiag.sweep.matrix import read_matrix
from dynadiag.sweep.session import SweepOptions, sweep

pytestmark = pytest.mark.any_torch

STEPS = """
import torch

def step(x):
    y = torch.relu(x) * 2
    print("hello")
    return y.sum()

def training():
    return step, torch.ones(4)
"""
MATRIX = """
verbs = ["explain", "parity"]
[subjects]
functions = ["steps.py:training"]
[[arms]]
name = "eager back end"
backend = "eager"
"""


def test_each_verb_gives_its_row(tmp_path):
    (tmp_path / "steps.py").write_text(STEPS)
    (tmp_path / "matrix.toml").write_text(MATRIX)
    state = sweep(read_matrix(tmp_path / "matrix.toml"), tmp_path / "out", SweepOptions(workers=2), lambda state, left_s: None)
    explained, compared = sorted(state.rows, key=lambda row: row.verb)
    assert (explained.status, explained.break_sites, explained.graphs, explained.reason) == ("done", 1, 2, None)
    assert [one.code for one in explained.findings] == ["GB0059"]
    assert compared.status == "done"
    assert compared.verdict == "0 differences in 2 of 2 graphs"
    assert (compared.graphs, compared.findings) == (None, ())
