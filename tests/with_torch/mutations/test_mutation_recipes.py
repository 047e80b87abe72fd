"""Each recipe of the mutation pages, before and after: the tool's own verdict changes as promised, and eager results are equal."""

import warnings

import pytest
import torch

from dynadiag import report
from dynadiag.advice.mutations import why_nothing
from dynadiag.passes.find_mutations import find_mutations
from dynadiag.trace import load
from tests.with_torch.mutations.mutation_recipes import RECIPES, main

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
    "body counter": ("DM13", "graph_break", "recompile"),
    "buffer": ("DM02", "cudagraph_skip", "free"),
    "undeclared": ("DM40", "silent_wrong", "cudagraph_skip"),
    "parameter": ("DM22", "graph_break", "free"),
}
# Recipes whose promise is a finding that goes: its code, and the slug of its advice.
FINDINGS = {"train step": ("DB02", "compile-model-apart")}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recipes")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        main(folder)
    torch._dynamo.reset()
    return folder


@pytest.fixture(scope="module")
def recipes():
    return RECIPES


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


# No line alone shows what else depends on its write; the changes are described on the pages of the codes.
@pytest.mark.parametrize("name", sorted(set(PROMISES) - NEW - {"undeclared"}))
def test_the_mutation_before_has_a_reason_for_no_advice(recorded, name):
    code = PROMISES[name][0]
    blamed = [one for one in find_mutations(load(recorded / f"{name}-before")).mutations if one.code == code]
    assert all(not one.advice and why_nothing(one) for one in blamed)


@pytest.mark.parametrize("name", sorted(FINDINGS))
def test_the_finding_goes_as_promised(recorded, name):
    code, slug = FINDINGS[name]
    before = {one.code: [fix.slug for fix in one.fix] for one in report.build(load(recorded / f"{name}-before")).findings}
    assert slug in before[code]
    assert code not in {one.code for one in report.build(load(recorded / f"{name}-after")).findings}


# `torch.cond` refuses a branch that writes a tensor in eager, too.
@pytest.mark.parametrize("name", sorted((set(PROMISES) | set(FINDINGS) | {"losses"}) - {"overlap", "branch"}))
def test_results_are_equal(recipes, name):
    before, after, make = recipes[name]
    torch.manual_seed(0)
    expected = before(*make(False))
    torch.manual_seed(0)
    torch.testing.assert_close(after(*make(True)), expected)
