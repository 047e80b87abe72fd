"""Code that was compiled again only because what calls it was: one finding for one cause."""

import pytest

from dynadiag.model.location import Location
from dynadiag.model.run import BreakEvent, Process, RecompileEvent, Run, Symbol
from dynadiag.model.run import RunInfo as Info
from dynadiag.passes.find_recompiles import find_recompiles

INNER = "/lib/python3.12/site-packages/kit/model.py"


def size(entry, name, old, new):
    return f"{entry}: tensor '{name}' size mismatch at index 1. expected {old}, actual {new}"


def nested(builders, outer, inner, *, through=("step",), symbols=()):
    """`step` and `forward`, each compiled twice; `forward` was called through these functions of the script."""
    callers = tuple(Location(builders.SCRIPT, 12, name) for name in through)
    frames = [
        builders.frame(0),
        builders.frame(1, compile=1),
        *(
            builders.replace(builders.frame(2 + i, code=1, compile=i, name="forward", file=INNER, line=5), callers=callers)
            for i in range(2)
        ),
    ]
    events = (RecompileEvent(frame="f1", reasons=tuple(outer)), RecompileEvent(frame="f3", reasons=tuple(inner)))
    run = Run(info=Info(), processes=(Process(index=0, log="a"),), frames=tuple(frames), recompiles=events, symbols=symbols)
    return find_recompiles(run)


@pytest.mark.parametrize("through", [("Trainer.step",), ("step", "Model.helper"), ("torch_dynamo_resume_in_step_at_12",)])
def test_the_same_change_in_a_call_is_one_finding(builders, through):
    (finding,) = nested(builders, [size("0/0", "x", 8, 12)], [size("1/0", "ids", 8, 12)], through=through).findings
    assert finding.title == "`step` and 1 function that it calls were recompiled, 2 times in all, because of `x.size(1)`"
    assert "The same change recompiles what it calls: `forward` (`ids.size(1)`: 8 -> 12)." in finding.why
    assert finding.cost is not None and (finding.cost.value, finding.evidence) == (2.0, ("r1", "r2", "f0", "f2"))


def test_the_first_value_may_be_missing_inside(builders):
    symbols = (Symbol(frame="f3", symbol="s0", source="L['labels'].size()[1]", value="12"),)
    (finding,) = nested(builders, [size("0/0", "x", 8, 12)], [size("1/0", "ids", 8, 12)], symbols=symbols).findings
    assert "`labels.size(1)`: another value -> 12" in finding.why


@pytest.mark.parametrize(
    ("inner", "through"),
    [
        ([size("1/0", "ids", 8, 16)], ("step",)),  # another change
        (["1/0: k == 2"], ("step",)),
        ([size("1/0", "ids", 8, 12), "1/0: tensor 'm' requires_grad mismatch. expected requires_grad=0"], ("step",)),  # and another cause
        ([size("1/0", "ids", 8, 12)], ("main",)),  # called by something else
        ([size("1/0", "ids", 8, 12)], ()),  # not recorded
    ],
)
def test_anything_else_stays_a_finding_of_its_own(builders, inner, through):
    assert len(nested(builders, [size("0/0", "x", 8, 12)], inner, through=through).findings) == 2


def test_a_break_before_what_it_calls_is_no_reason_why_the_function_itself_was_compiled_again(builders):
    """The compiled function was entered with a smaller last batch; its helper was compiled apart because of a break. "Fix that first"
    was said of both.
    """
    at = Location(builders.SCRIPT, 12, "step", "if helper(x) > 0:")
    broke = BreakEvent(
        frame="f0", attempt=0, gb_id="GB0170", gb_type="?", explanation=None, hints=(), context=None, stack=(at,), torch_frame=at
    )
    outer, inner = [size("0/0", "x", 8, 4)], [size("1/0", "h", 8, 4)]
    frames = [
        *(builders.frame(i, compile=i, outcome="broke") for i in range(2)),
        *(builders.replace(builders.frame(2 + i, code=1, compile=i, name="helper", line=5), callers=(at,)) for i in range(2)),
    ]
    events = (RecompileEvent(frame="f1", reasons=tuple(outer)), RecompileEvent(frame="f3", reasons=tuple(inner)))
    run = Run(info=Info(), processes=(Process(index=0, log="a"),), frames=tuple(frames), recompiles=events, breaks=(broke,))
    findings = find_recompiles(run).findings
    main = next(one for one in findings if "`step`" in one.title)
    assert "only because" not in main.why
    assert len(findings) == 1 or any("only because GB0170" in one.why for one in findings if one is not main)
