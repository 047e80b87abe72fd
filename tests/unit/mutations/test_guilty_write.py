"""Which line changed a tensor that autograd had saved: named where one recorded write alone fits the sizes that autograd gives."""

import pytest

from dynadiag.model.graph import TracedInput
from dynadiag.model.location import Location
from dynadiag.model.run import CompileKey, Frame, Problem, Run, RunInfo
from dynadiag.passes.mutation_errors import uncaught_facts
from dynadiag.passes.mutation_facts import Fact, Site

SCRIPT = "/home/me/train.py"
SAID = "RuntimeError: one of the variables needed for gradient computation has been modified by an inplace operation: {}"
NAMED = SAID.format("[torch.FloatTensor [8, 16]] is at version 2; expected version 0 instead.")
FRAME = Frame(id="f0", key=CompileKey(0, 0, 0, 0), attempts=1, name="forward", file=SCRIPT, line=3, outcome="compiled")


def told(text, *written):
    """The fact for an exception with `text` when inputs of these (source, shape, line) were written."""
    inputs = tuple(
        TracedInput(
            frame="f0", source=source, shape=shape, stride=None, dtype="torch.float32", device="cpu",
            requires_grad=False, is_leaf=True, is_parameter=False, storage=None,
        )
        for source, shape, _ in written
    )  # fmt: skip
    facts = [
        Fact(code="DM02", frame=FRAME, input=source, kind="data", sites=(Site(Location(SCRIPT, line, "forward", "x.add_(1)"), "add_"),))
        for source, _, line in written
    ]
    ended = Problem(kind="uncaught", process=0, text=text, stack=(Location(SCRIPT, 72, "<module>", "loss.backward()"),))
    (fact,) = uncaught_facts(Run(info=RunInfo(), frames=(FRAME,), problems=(ended,), traced_inputs=inputs), facts)
    return fact


def test_the_only_write_with_these_sizes_is_shown():
    fact = told(NAMED, ("L['x']", (8, 16), 51), ("L['ema']", (16, 16), 27))
    assert (fact.code, fact.sites[0].where.line) == ("DM23", 51)
    assert "the only one recorded of an input with these sizes (x)" in fact.doubts[0]


@pytest.mark.parametrize(
    ("text", "written"),
    [
        (NAMED, [("L['x']", (8, 16), 51), ("L['y']", (8, 16), 60)]),
        (NAMED, [("L['ema']", (16, 16), 27)]),
        (NAMED, []),
        (SAID.format("[torch.cuda.HalfTensor []], which is output 0 of X, is at version 1"), [("L['x']", (8, 16), 51)]),
        (SAID.format("something else"), [("L['x']", (8, 16), 51)]),
    ],
)
def test_else_the_line_that_failed_is_shown_and_said_to_be_that(text, written):
    fact = told(text, *written)
    assert fact.sites[0].where.line == 72
    assert fact.doubts == ("the line is where the program failed; autograd does not name the line that wrote",)


def test_a_tensor_without_dimensions_has_sizes_too():
    text = SAID.format("[torch.cuda.HalfTensor []], which is output 0 of X, is at version 1")
    assert told(text, ("L['count']", (), 9)).sites[0].where.line == 9
