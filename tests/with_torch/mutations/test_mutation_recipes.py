"""Each recipe of the mutation pages, before and after: the tool's own verdict changes as promised, and eager results are equal."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from dynadiag.passes.find_mutations import find_mutations
from dynadiag.trace import load

PROGRAM = Path(__file__).with_name("mutation_recipes.py")
# The code before, its worst effect, the code whose advice says so, and the worst effect that may be left.
PROMISES = {
    "ema": ("DM04", "copy_back", "free"),
    "argument": ("DM03", "copy_back", None),
    "counter": ("DM11", "recompile", "free"),
    "position": ("DM11", "recompile", "free"),
    "transpose": ("DM05", "graph_break", None),
    "overlap": ("DM10", "cudagraph_skip", "cudagraph_skip"),
    "dtype": ("DM09", "error", "cudagraph_skip"),
    "body": ("DM13", "graph_break", "recompile"),
    "static": ("DM02", "cudagraph_skip", "free"),
    "out": ("DM20", "graph_break", None),
    "stacked": ("DM14", "extra_copy", "cudagraph_skip"),
    "branch": ("DM13", "error", "cudagraph_skip"),
    "hook": ("DM13", "graph_break", None),
    "parameter": ("DM22", "graph_break", "free"),
}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recipes")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(PROGRAM), str(folder)]
    subprocess.run(command, env=environment, capture_output=True, timeout=500, check=True)
    return folder


@pytest.fixture(scope="module")
def recipes():
    spec = importlib.util.spec_from_file_location("mutation_recipes", PROGRAM)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.RECIPES


# torch 2.11 traces a hook that writes its gradient.
NEW = {"hook"} if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 15) else set()


def codes(folder, name):
    return {(one.code, one.worst) for one in find_mutations(load(folder / name)).mutations}


@pytest.mark.parametrize("name", sorted(set(PROMISES) - NEW))
def test_the_verdict_changes_as_promised(recorded, name):
    code, effect, left = PROMISES[name]
    before, after = codes(recorded, f"{name}-before"), codes(recorded, f"{name}-after")
    assert (code, effect) in before
    assert code not in {found for found, _ in after}
    assert {worst for _, worst in after} <= {left, "free"}


@pytest.mark.parametrize("name", sorted(set(PROMISES) - NEW))
def test_the_mutation_before_has_advice(recorded, name):
    code = PROMISES[name][0]
    blamed = [one for one in find_mutations(load(recorded / f"{name}-before")).mutations if one.code == code]
    assert all(one.advice for one in blamed)


# `torch.cond` refuses a branch that writes a tensor in eager, too.
@pytest.mark.parametrize("name", sorted(set(PROMISES) - {"overlap", "branch"}))
def test_results_are_equal(recipes, name):
    before, after, make = recipes[name]
    torch.manual_seed(0)
    expected = before(*make(False))
    torch.manual_seed(0)
    torch.testing.assert_close(after(*make(True)), expected)
