"""Recompile advice in words and code: only what the user can write where they call the compiled function."""

import pytest

from dynadiag.advice.recompile_cause import Cause
from dynadiag.advice.recompiles import recompile_advice
from dynadiag.model.run import CompileKey, Frame, Location, Run, RunInfo

FILE = "/home/me/train.py"
EMPTY = Run(info=RunInfo())


def caused(kind, source, *, code=None, values=(), raw="", run=EMPTY, **facts):
    call = None if code is None else Location(FILE, 9, "main", code)
    return recompile_advice(Cause(kind=kind, source=source, process=0, raw_source=raw, values=values, call=call, **facts), run)


@pytest.mark.parametrize(
    ("code", "after"),
    [
        ("y = f(x)  # each batch", "torch._dynamo.mark_dynamic(x, 1)\ny = f(x)"),
        ("y = f(x=tokens)", "torch._dynamo.mark_dynamic(tokens, 1)\ny = f(x=tokens)"),
        ("y = f(batch)", None),
        ("y = f(**batch)", None),
        (None, None),
    ],
)
def test_a_tensor_is_marked_by_the_name_it_has_at_the_call(code, after):
    advice = caused("size", "x.size(1)", code=code, values=("8", "12"))[0]
    assert (advice.slug, advice.after) == ("mark-dynamic", after)
    assert advice.before == (None if after is None else code.partition("  #")[0])
    assert after is not None or "(x, 1)` outside the compiled function (by the name that the tensor has there)" in advice.text


def test_no_mark_is_put_into_code_that_is_compiled_itself():
    frame = Frame(id="f0", key=CompileKey(0, 0, 0, 0), attempts=1, name="main", file=FILE, line=3, outcome="broke")
    advice = caused("size", "x.size(1)", code="y = f(x)", values=("8", "12"), run=Run(info=RunInfo(), frames=(frame,)))[0]
    assert advice.after is None
    assert "outside the compiled function" in advice.text


def test_the_argument_of_a_module_is_not_called_by_torchs_name():
    assert "the first argument" in caused("size", "args[0].size(2)", values=("8", "12"))[0].text


@pytest.mark.parametrize(
    ("source", "raw", "values", "slugs"),
    [
        ("len(kwargs)", "len(L['kwargs'])", ("6", "7"), ["same-arguments"]),
        ("len(self.history)", "len(L['self'].history)", ("0", "1", "2"), ["append-outside"]),
        ("len(states)", "len(G['states'])", ("0", "1"), ["append-outside"]),
        ("len(xs)", "len(L['xs'])", ("2", "3"), ["stack-list"]),
    ],
)
def test_a_length_is_cured_by_what_it_is_the_length_of(source, raw, values, slugs):
    assert [advice.slug for advice in caused("length", source, raw=raw, values=values)] == slugs


@pytest.mark.parametrize("source", ["kwargs['past'].layers[0].length.item()", "___stack0"])
def test_nothing_is_said_of_a_value_that_has_no_name_in_the_program(source):
    assert caused("value", source, values=("0", "1")) == ()
    assert caused("invalidated", "___stack0") == ()


@pytest.mark.parametrize(("source", "slug"), [("self.step", "attribute-as-tensor"), ("rows.step", "split-by-value")])
def test_a_counter_called_step_is_no_step_of_a_range(source, slug):
    assert caused("value", source, values=("0", "1"))[0].slug == slug
