"""Inputs of gigabytes: their file is mapped, and a child that ends after its last call does not copy them for it."""

from __future__ import annotations

import os

import pytest
import torch

from dynadiag.reduce.graphs import inputs as recipes
from dynadiag.reduce.graphs import loading
from dynadiag.reduce.graphs.candidate import candidate_of
from dynadiag.reduce.graphs.judge import observe_isolated
from dynadiag.reduce.graphs.setting import Setting

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def test_a_child_takes_large_inputs_as_they_are_and_changes_none(monkeypatch, tmp_path):
    """To copy gigabytes twice was most of such a question."""
    for module in (recipes, loading):
        monkeypatch.setattr(module, "LARGE_BYTES", 16)
    torch.save({"x": torch.ones(8)}, tmp_path / "inputs.pt")
    (x,) = loading.read_saved(tmp_path / "inputs.pt").values()
    gm = torch.fx.symbolic_trace(lambda x: (x.mul_(3) + 1,))
    candidate = candidate_of(gm, [x])
    address = candidate.inputs[0].data.data_ptr()
    assert [recipes.make_values(candidate.inputs, spend=spend)[0].data_ptr() == address for spend in (True, False)] == [True, False]

    def says_which(module, inputs):
        def call(x):
            where = "the memory of the input" if x.data_ptr() == address else "a copy"
            x.mul_(3)
            raise RuntimeError(where)

        return call

    said = [observe_isolated(candidate, Setting(backend=says_which, check=check), timeout_s=600.0) for check in ("raises", "mutation")]
    assert [one.failure.message for one in said] == ["the memory of the input", "a copy"]
    assert x.tolist() == loading.read_saved(tmp_path / "inputs.pt")["x"].tolist() == [1.0] * 8
