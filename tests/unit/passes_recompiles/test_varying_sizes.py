"""Which sizes may be marked as dynamic, from the shapes of the calls that were compiled."""

import pytest

from dynadiag.model.compiled import ShapeFact
from dynadiag.model.graph import TracedInput
from dynadiag.model.location import Location
from dynadiag.model.run import Symbol
from dynadiag.passes.compile_calls import calling_lines, names_passed_before
from dynadiag.passes.recompile_rows import input_shapes, rest_was_skipped, sides_met, varying_sizes

BOTH = (("x", 0), ("x", 1))


@pytest.mark.parametrize(
    ("shapes", "varying"),
    [
        ([(4, 10), (4, 16)], (("x", 1),)),
        ([(4, 10), (4, 16), (2, 12)], BOTH),
        ([(4, 10), (4, 16), (2, 12), (1, 12)], BOTH),  # the call with one row has its own version, marked or not
        ([(1, 10), (4, 16), (2, 12)], ()),  # the first version is for one row only
        ([(4, 10), (4, 16, 1)], ()),
    ],
)
def test_a_size_of_one_rules_out_a_mark_only_in_the_first_call(builders, shapes, varying):
    frames = builders.recompiled(*[["0/0: k == 1"]] * (len(shapes) - 1)).frames
    assert varying_sizes(frames, (), {frame.id: {"x": shape} for frame, shape in zip(frames, shapes, strict=True)}) == varying


@pytest.mark.parametrize(
    ("outcomes", "marked"),
    [
        (("compiled", "compiled"), True),
        (("broke", "broke"), True),
        (("broke", "compiled"), True),
        (("broke", "skipped"), False),
        (("compiled", "broke"), False),
    ],
)
def test_a_size_is_not_marked_where_the_dynamic_version_was_not_compiled(builders, outcomes, marked):
    """`divmod` of a symbol raises in Dynamo: marked, not even the first call was compiled."""
    frames = builders.recompiled(["0/0: k == 1"]).frames
    frames = [builders.replace(frame, outcome=outcome) for frame, outcome in zip(frames, outcomes, strict=True)]
    shapes = {frame.id: {"x": shape} for frame, shape in zip(frames, [(4, 8), (4, 9)], strict=True)}
    assert bool(varying_sizes(frames, (), shapes)) is marked


def test_a_size_is_not_marked_where_the_code_behind_a_break_was_not_compiled(builders):
    """`"%d rows" % n` of a symbol raises in Dynamo: marked, the rest of the first call ran eagerly too."""
    run = builders.recompiled(["0/0: k == 1"])
    rest = builders.replace(run.frames[1], id="f9", name="torch_dynamo_resume_in_step_at_12", outcome="skipped")
    assert not rest_was_skipped(run.frames[0], run)
    assert rest_was_skipped(run.frames[0], builders.replace(run, frames=(*run.frames, rest)))


def test_what_is_none_in_a_later_call_is_not_marked(builders):
    frames = builders.recompiled(["0/0: k == 1"], ["0/0: k == 1"]).frames
    shapes = [{"x": (4,), "mask": (4,)}, {"x": (5,), "mask": (5,)}, {"x": (6,)}]
    assert varying_sizes(frames, (), dict(zip([one.id for one in frames], shapes, strict=True))) == ()


def test_an_array_of_numpy_has_no_name_that_can_be_marked(builders):
    """`maybe_mark_dynamic` of an array raises an AttributeError."""
    rest = {"stride": None, "dtype": None, "device": None, "requires_grad": False, "is_leaf": True, "is_parameter": False, "storage": None}
    array = TracedInput(frame="f0", source="___from_numpy(L['x'])", shape=(4,), **rest)
    assert "x" not in input_shapes(builders.replace(builders.recompiled([]), traced_inputs=(array,)))["f0"]


ENTRY = Location("/opt/venv/lib/python3.12/site-packages/torch/_dynamo/eval_frame.py", 1265, "compile_wrapper")


def test_a_call_in_compiled_code_is_no_place_for_a_mark(builders):
    """`self.front(wav)` in a compiled `forward`: the mark ended the program with an exception."""
    run = builders.recompiled([])
    outer, inner = Location(builders.SCRIPT, 90, "main", "y = net(x)"), Location(builders.SCRIPT, 27, "VAD.forward", "m = self.front(x)")
    plain = builders.replace(run.frames[0], callers=(outer, ENTRY))
    below = builders.replace(run.frames[0], callers=(outer, ENTRY, inner, ENTRY))
    assert calling_lines([plain], run) == (outer,)
    assert calling_lines([below], run) == ()


def test_the_names_that_another_compiled_function_was_given_first(builders):
    """Marked before its second call, `x` was a marked tensor in the next round of the first: one more recompile."""
    run = builders.recompiled([])
    lines = [Location(builders.SCRIPT, line, "main", code) for line, code in ((90, "a = enc(x, batch.ids)"), (91, "y = dec(x)"))]
    first, second = (builders.replace(frame, callers=(line, ENTRY)) for frame, line in zip([run.frames[0]] * 2, lines, strict=True))
    second = builders.replace(second, id="f1")
    run = builders.replace(run, frames=(first, second))
    assert names_passed_before([first], run) == frozenset()
    assert names_passed_before([second], run) == {"a", "enc", "x", "batch"}


def sides(builders, conditions, shapes, varying=BOTH):
    run = builders.recompiled(*[["0/0: k == 1"]] * (len(shapes) - 1))
    last = run.frames[-1].id
    facts = tuple(ShapeFact(kind="guard", frame=last, attempt=0, text=one) for one in conditions)
    symbols = tuple(Symbol(frame=last, symbol=f"s{index}", source=f"L['x'].size()[{index}]", value="8") for index in (0, 1))
    run = builders.replace(run, shape_facts=facts, symbols=symbols)
    return sides_met(run.frames, varying, {frame.id: {"x": shape} for frame, shape in zip(run.frames, shapes, strict=True)}, run)


def test_each_side_of_a_condition_on_a_size_has_a_version_whatever_is_marked(builders):
    """A network that pads odd sizes: two marks ended one of three recompiles, where two were said."""
    odd = ("Ne(Mod(s0, 2), 0)", "Eq(Mod(s1, 2), 0)")
    assert sides(builders, odd, [(8, 6), (9, 6), (10, 7), (12, 12)]) == 3
    assert sides(builders, odd, [(8, 6), (10, 6), (12, 12)]) == 1
    assert sides(builders, ("8*s0 + 32*((s0//8)) + 192 <= 12*s0 + 192", "s0 > 8"), [(64, 3), (96, 5)]) == 1
    assert sides(builders, ("Max(s0, s1) < 9 and u0 > 2", "s0 **", "Mod(s0, 0)", "f(s0)"), [(8, 6), (9, 7)]) == 1  # none can be computed


def test_sizes_that_were_equal_at_first_are_one_symbol(builders):
    assert sides(builders, (), [(4, 4), (5, 7)]) == 2
    assert sides(builders, (), [(4, 4), (5, 5)]) == 1
    assert sides(builders, (), [(4, 5), (5, 5)]) == 1
