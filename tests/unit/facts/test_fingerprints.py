"""Fingerprints survive moved lines, other checkouts, formatters and new torch versions; different things never share one."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynadiag.facts.fingerprint import SCHEME, Subject, fingerprint, fingerprints, functions_of, matched
from dynadiag.facts.statements import of_line
from dynadiag.model import Location, Run, RunInfo
from dynadiag.model.run import SourceFunction

FILE = "/home/me/proj/train.py"
RUN = Run(info=RunInfo(cwd="/home/me/proj"))


def _at(line, code="x = y.item()", file=FILE, function="step"):
    return Location(file, line, function, code)


def _mark(where, code="GB0124", run=RUN, **more):
    return fingerprint(Subject(code, where, **more), run)


def _run(text, name="step", line=10):
    return Run(info=RunInfo(cwd="/home/me/proj"), functions=(SourceFunction(FILE, line, name, text),))


def test_moved_lines_other_checkouts_and_resume_functions_keep_it():
    here = _mark(_at(10))
    assert _mark(_at(99, "x  =  y.item()   # read")) == here
    assert _mark(_at(10, function="torch_dynamo_resume_in_step_at_7")) == here
    assert _mark(_at(10, file="/ci/build/train.py"), run=Run(info=RunInfo(cwd="/ci/build"))) == here


def test_code_line_function_and_name_tell_subjects_apart():
    others = [
        _mark(_at(10), "GB0170"),
        _mark(_at(10, "z = y.item()")),
        _mark(_at(10, "x = y.tolist()")),
        _mark(_at(10, function="other")),
        _mark(_at(10), name="x"),
        _mark(_at(10), function="callee"),
    ]
    assert len({_mark(_at(10)), *others}) == 7


def test_equal_lines_are_numbered_by_their_line_in_any_order():
    one, two = Subject("GB0124", _at(10)), Subject("GB0124", _at(20))
    assert fingerprints([one, two], RUN) == fingerprints([two, one], RUN)[::-1]
    moved = [Subject("GB0124", _at(15)), Subject("GB0124", _at(25))]
    assert fingerprints(moved, RUN) == fingerprints([one, two], RUN)


FLAT = "def step(x, y):\n    print('loss', x,  y.sum())\n    return x"
SPREAD = 'def step(\n    x,\n    y,\n):\n    print(\n        "loss",  # what it is\n        x,\n        y.sum(),\n    )\n    return x'


def test_a_formatter_changes_nothing_where_the_function_was_recorded():
    flat = _mark(_at(11, "print('loss', x,  y.sum())"), run=_run(FLAT))
    assert {_mark(_at(line, SPREAD.split("\n")[line - 10].strip()), run=_run(SPREAD)) for line in (14, 15, 16, 17)} == {flat}
    assert _mark(_at(10, "def step(x, y):"), run=_run(FLAT)) == _mark(_at(10, "def step("), run=_run(SPREAD))


def test_only_the_header_of_a_block_counts():
    first, second = (_run(f"def step(x):\n    if x.sum() > 0:\n        x = x {sign} 1\n    return x") for sign in "+-")
    assert _mark(_at(11, "if x.sum() > 0:"), run=first) == _mark(_at(11, "if (x.sum() > 0):"), run=second)


def test_a_line_that_is_not_as_recorded_is_taken_as_it_is():
    assert _mark(_at(11, "z = y.item()"), run=_run(FLAT)) == _mark(_at(11, "z = y.item()"))


def test_a_change_of_fingerprints_comes_with_another_number_of_their_scheme():
    """Baselines hold them: when these values change, raise SCHEME. With 2, paths do not hang on the folder of the start."""
    run = _run('def step(x):\n    for y in x:\n        print("a", y.sum())')
    marks = [_mark(_at(12, 'print("a", y.sum())'), run=run), _mark(None, "DF01", run), _mark(_at(10, None), "DR02", run)]
    assert (SCHEME, marks) == (
        2,
        ["7241c-4277aadc-0d9f50-64d8a6-666857", "9ebb4-5e253af5-12ae32-12ae32-055539", "144f2-4277aadc-0d9f50-12ae32-2ddf3a"],
    )


def test_methods_of_the_same_name_are_told_apart_by_their_class():
    runs = [_run("def forward(self, x):\n    print(x)", name=f"{name}.forward") for name in ("A", "B")]
    assert len({_mark(_at(11, "print(x)", function="forward"), run=run) for run in runs}) == 2


def _recompiled(*methods):
    """The marks of recompiled methods, each at its `def`; (name, body) each."""
    texts = [(name, f"def forward(self, wav):\n    {body}") for name, body in methods]
    functions = tuple(SourceFunction(FILE, 10 * n, name, text) for n, (name, text) in enumerate(texts, start=1))
    run = Run(info=RunInfo(cwd="/home/me/proj"), functions=functions)
    return [_mark(_at(one.line, None, function="forward"), "DR02", run) for one in functions], functions_of(run)


def test_two_renamed_functions_that_begin_alike_are_told_apart_by_what_they_do():
    old, _ = _recompiled(("Front.forward", "return wav.abs()"), ("Net.forward", "return self.fc(wav)"))
    new, there = _recompiled(("Model.forward", "'What it is.'\n    return self.head(sound)"), ("Encoder.forward", "return sound.abs()"))
    assert matched(old, new, there=there) == {0: 1, 1: 0}


def test_another_body_of_a_function_of_the_same_name_is_the_same_function():
    old, _ = _recompiled(("Net.forward", "return wav.abs()"), ("Other.forward", "return wav"))
    new, there = _recompiled(("Net.forward", "return wav.exp()"), ("Other.forward", "return wav"))
    assert matched(old, new, there=there) == {0: 0, 1: 1}


def test_a_statement_of_a_script_that_a_formatter_spread_is_found_in_what_was_recorded_around_its_line():
    run = Run(info=RunInfo(cwd="/home/me/proj"), blocks={(FILE, 7): "print(\n    t,\n    step(lin(x), mask)[2],\n)"})
    spread = _at(9, "step(lin(x), mask)[2],", function="<module>")
    assert _mark(spread, run=run) == _mark(_at(3, "print(t, step(lin(x), mask)[2])", function="<module>"))


@given(st.lists(st.tuples(st.sampled_from(["GB0124", "DF02"]), st.integers(0, 5), st.text(max_size=8)), max_size=12))
def test_all_are_different(rows):
    prints = fingerprints([Subject(code, _at(line, text)) for code, line, text in rows], RUN)
    assert len(set(prints)) == len(rows)
    assert all(re.fullmatch(r"[0-9a-f]{5}-[0-9a-f]{8}(-[0-9a-f]{6}){3}(-[1-9]\d*)?", one) for one in prints)


@given(st.text(max_size=60))
def test_any_source_line_can_be_taken_apart(code):
    assert of_line(f"  {code.strip()}  ") == of_line(code.strip())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('print("# not a comment")  # but this is', "print('# not a comment')"),
        ("for x in f(a,  # open", "for x in f( a,"),
        ("elif a:  # second", "elif (a):"),
        ("with open(p) as f:", "with open( p ) as f:"),
    ],
)
def test_comments_blanks_quotes_and_brackets_do_not_count(one, other):
    assert of_line(one) == of_line(other)


def _matched(old, new, *, there=frozenset(), other_torch=False):
    marks = [fingerprints([Subject(*one) for one in side], RUN) for side in (old, new)]
    return matched(*marks, there=there, other_torch=other_torch)


def test_a_renamed_function_is_found_again_unless_the_old_one_is_still_there():
    old, new = [("GB0124", _at(10))], [("GB0124", _at(10, function="train_step"))]
    assert _matched(old, new) == {0: 0}
    assert _matched(old, new, there=functions_of(_run("def step(): pass"))) == {}


def test_no_function_of_before_is_taken_for_a_renamed_one():
    """`forward` was there, with another finding, so that of `tail` was not moved into it."""
    marks = {name: _mark(_at(10, None, function=name), "DR03", _run("def f(): pass")) for name in ("tail", "forward", "finish_up")}
    forward = _mark(_at(10, None, function="forward"), "DR02", _run("def f(): pass"))
    new, there = [marks["forward"], marks["finish_up"]], frozenset({forward.split("-")[2], marks["finish_up"].split("-")[2]})
    assert matched([marks["tail"]], new, there=there) == {}
    assert matched([marks["tail"], forward], [*new, forward], there=there) == {1: 0, 2: 1}
    assert matched([marks["tail"]], new, there=there, were={forward.split("-")[2]}) == {1: 0}


def test_renamed_variables_are_found_again_but_not_other_calls():
    assert _matched([("GB0124", _at(10, "log(x)"))], [("GB0124", _at(10, "report(y)"))]) == {0: 0}
    assert _matched([("GB0124", _at(10, "x.item()"))], [("GB0124", _at(10, "x.tolist()"))]) == {}


def test_what_could_be_either_of_two_is_neither():
    old = [("GB0124", _at(10, "log(x)"))]
    assert _matched(old, [("GB0124", _at(10, "log(y)")), ("GB0124", _at(11, "log(z)"))]) == {}


def test_a_cured_line_above_does_not_cost_the_others_their_match():
    assert _matched([("GB0124", _at(line)) for line in (10, 20, 30)], [("GB0124", _at(line)) for line in (20, 30)]) == {0: 0, 1: 1}


def test_another_torch_may_give_a_break_another_id():
    old, new = [("GB0124", _at(10))], [("GB0300", _at(10))]
    assert _matched(old, new) == {}
    assert _matched(old, new, other_torch=True) == {0: 0}


@given(st.lists(st.text(max_size=20), max_size=6), st.lists(st.text(max_size=20), max_size=6))
def test_any_text_can_be_matched_and_nothing_twice(old, new):
    found = matched(old, new, there=frozenset())
    assert len(set(found.values())) == len(found)
    assert all(0 <= to < len(new) and 0 <= of < len(old) for to, of in found.items())
