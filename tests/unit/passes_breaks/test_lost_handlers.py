"""What a graph raises in eager too may be caught there: the clause that is lost in compiled code is named."""

from dataclasses import replace

import pytest

from dynadiag.model.difference import Difference
from dynadiag.model.location import Location
from dynadiag.model.parity import ParityCall
from dynadiag.model.run import Run, RunInfo, SourceFunction
from dynadiag.passes.find_parity import find_parity

SCRIPT = "/home/me/train.py"
SAFE = "def safe(x):\n    try:\n        {line}\n    except {clause}:\n        return x * 0"


def findings(line, clause, raised, at=12):
    both = Difference(kind="both_raise", where="call", index=0, name="the call", eager=raised, compiled="RuntimeError: no")
    both = replace(both, stack=(Location(SCRIPT, 90, "<module>", "safe(x)"), Location(SCRIPT, at, "safe", line)))
    call = ParityCall(process=0, frame=None, graph=0, call=1, verdict="not_compared", why="both raised", differences=(both,))
    function = SourceFunction(SCRIPT, 10, "safe", SAFE.format(line=line, clause=clause))
    return find_parity(Run(info=RunInfo(), parity=(call,), functions=(function,))).findings


@pytest.mark.parametrize(
    ("line", "clause", "raised"),
    [
        ("return torch.linalg.cholesky(x)", "RuntimeError", "_LinAlgError: not positive-definite"),
        ("return x[i]", "(IndexError, ValueError)", "IndexError: index 7 is out of bounds"),
        ("return x.gather(0, i)", "Exception", "RuntimeError: index 9 is out of bounds"),
        ("assert x.sum() > 0", "AssertionError", "RuntimeError: assertion error"),
    ],
)
def test_a_clause_that_catches_it_in_eager_is_named(line, clause, raised):
    (finding,) = findings(line, clause, raised)
    assert (finding.code, finding.where.line, [one.slug for one in finding.fix]) == ("DM44", 12, ["try-outside"])
    assert f"in eager `except {clause}` (train.py:13) catches it" in finding.why


@pytest.mark.parametrize(
    ("clause", "raised", "at"),
    [("KeyError", "IndexError: no", 12), ("IndexError", "RuntimeError: no", 12), ("RuntimeError", "RuntimeError: no", 14)],
)
def test_another_clause_and_a_line_outside_of_the_try_are_not(clause, raised, at):
    assert findings("return x[i]", clause, raised, at) == ()
