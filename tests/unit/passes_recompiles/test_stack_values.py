"""Values on Python's stack at a break: said in words, named by their expression only where it is certain."""

import pytest

from dynadiag.model.location import Location
from dynadiag.model.run import BreakEvent
from dynadiag.passes.find_recompiles import find_recompiles
from dynadiag.passes.stack_values import broken_lines, written

RESUMED = "torch_dynamo_resume_in_step_at_13"


def broken_run(builders, code, source, values, context=None, name=RESUMED):
    """A run whose resume function was compiled again because of a number on the stack; `code` is the line that broke."""
    place = Location(builders.SCRIPT, 13, "step", code)
    event = BreakEvent(
        frame="f0", attempt=0, gb_id=None, gb_type="x", explanation=None, hints=(), context=context, stack=(), torch_frame=place
    )
    old, new = values
    reasons = [f"0/0: {source} == {old:<60}  # x  # t.py:13 in step"]
    run = builders.recompiled(reasons, symbols=[(1, f"L['{source}']", new)], name=name)
    return builders.replace(run, breaks=(event,))


@pytest.mark.parametrize(
    ("code", "source", "context", "said"),
    [
        ('print("norm", h.norm().item())', "___stack2", "call_method TensorVariable() item () {}", "h.norm().item()"),
        ("n = int(h.sum())", "___stack0", None, "int(h.sum())"),
        ("if float(x.max()) > limit:", "___stack0", None, "float(x.max())"),
        ("return 2.0 * helper(x)", "___stack1", None, "helper(x)"),
        ('print("norm", h.norm().item())', "___stack2", None, None),  # which of the two calls
        ("print(n, h.item())", "___stack2", "call_method TensorVariable() item () {}", None),  # in a loop it is n
        ("total += h.item()", "___stack0", "call_method TensorVariable() item () {}", None),  # total
        ("0.5 * h.item(),", "___stack1", "call_method TensorVariable() item () {}", None),  # an argument of a call on several lines
        ("max(0.5, h.item())", "___stack2", "call_method TensorVariable() item () {}", None),
        ("y = [h.item() for h in hs]", "___stack0", None, None),
        ("}{ not python", "___stack0", None, None),
        ("", "___stack0", None, None),
    ],
)
def test_a_number_is_named_where_one_call_can_have_left_it(builders, code, source, context, said):
    run = broken_run(builders, code, source, ("3", "4"), context)
    expected = f"the value of `{said}`" if said else "a value"
    assert written(source, run.frames[0], broken_lines(run), ("3", "4")) == f"{expected} computed before the break at line 13"


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("len(___stack0.__self__.history)", "the length of `__self__.history` of a value computed before the break at line 13"),
        ("len(___stack0)", "the length of a value computed before the break at line 13"),
        ("keys of ___stack1.state", "the keys of `state` of a value computed before the break at line 13"),
        ("2*___stack0 > 3", "a condition on a value computed before the break at line 13"),
    ],
)
def test_a_length_is_no_condition(builders, source, said):
    run = broken_run(builders, "self.meter.update(loss.item())", "___stack0", ("1", "2"))
    assert written(source, run.frames[0], broken_lines(run), ("1", "2")) == said


def test_the_report_says_it_and_keeps_torchs_name_for_programs(builders):
    run = broken_run(builders, 'print("norm", h.norm().item())', "___stack2", ("0.5", "0.25"), "call_method TensorVariable() item () {}")
    found = find_recompiles(run)
    words = "the value of `h.norm().item()` computed before the break at line 13"
    (finding,) = found.findings
    assert finding.title == f"`step` was recompiled once because of {words}"
    assert f"T{words[1:]}: 0.5 -> 0.25" in finding.why
    assert "___stack" not in repr((finding, found.transitions))
    assert found.transitions[0].source == words.replace("`", "")
    assert found.recompiles[0].changed[0].source == "___stack2"


def test_parts_of_a_value_and_conditions_are_said_too(builders):
    run = broken_run(builders, "y = self.helper(x)", "___stack0", ("3", "4"))
    lines, frame = broken_lines(run), run.frames[0]
    of = "the value of `self.helper(x)` computed before the break at line 13"
    assert written("___stack0.size(0)", frame, lines) == f"`size(0)` of {of}"
    assert written("___stack0.size(0), x.size(1)", frame, lines) == f"`size(0)` of {of}, `x.size(1)`"
    assert written("___stack0.cache[0]", frame, lines) == "`cache[0]` of a value computed before the break at line 13"
    assert written("___stack0", frame, lines, ("'a'", "'b'")) == "a value computed before the break at line 13"
    assert written("x.size(0)", frame, lines) == "`x.size(0)`"


def test_without_the_line_it_is_said_in_words(builders):
    run = broken_run(builders, "n = int(h)", "___stack0", ("3", "4"), name="step")
    assert "a value computed before the graph break" in find_recompiles(run).findings[0].title


@pytest.mark.parametrize("reason", ["tensor '___stack0' dtype mismatch. expected Float, actual Double", "___check_type_id(___stack0, 5)"])
def test_advice_names_no_value_of_the_stack(builders, reason):
    run = builders.recompiled([f"0/0: {reason}"], name=RESUMED)
    assert "___stack" not in repr(find_recompiles(run).findings)
