"""Fingerprints survive moved lines, other checkouts and new torch versions; different things never share one."""

from hypothesis import given
from hypothesis import strategies as st

from dynadiag.facts.fingerprint import Subject, fingerprint, fingerprints, normal_source
from dynadiag.model import Location, Run, RunInfo

RUN = Run(info=RunInfo(cwd="/home/me/proj"))


def _at(line, code="x = y.item()", file="/home/me/proj/train.py", function="step"):
    return Location(file, line, function, code)


def test_moved_lines_other_checkouts_and_resume_functions_keep_it():
    here = fingerprint("GB0124", _at(10), RUN)
    assert fingerprint("GB0124", _at(99, "x  =  y.item()   # read"), RUN) == here
    assert fingerprint("GB0124", _at(10, function="torch_dynamo_resume_in_step_at_7"), RUN) == here
    assert fingerprint("GB0124", _at(10, file="/ci/build/train.py"), Run(info=RunInfo(cwd="/ci/build"))) == here


def test_code_line_function_and_name_tell_subjects_apart():
    base = fingerprint("GB0124", _at(10), RUN)
    others = [
        fingerprint("GB0170", _at(10), RUN),
        fingerprint("GB0124", _at(10, "z = y.item()"), RUN),
        fingerprint("GB0124", _at(10, function="other"), RUN),
        fingerprint("GB0124", _at(10), RUN, name="x"),
        fingerprint("GB0124", _at(10), RUN, ordinal=1),
    ]
    assert len({base, *others}) == 6


def test_equal_lines_are_numbered_by_their_line_in_any_order():
    one, two = Subject("GB0124", _at(10)), Subject("GB0124", _at(20))
    assert fingerprints([one, two], RUN) == fingerprints([two, one], RUN)[::-1]
    moved = [Subject("GB0124", _at(15)), Subject("GB0124", _at(25))]
    assert fingerprints(moved, RUN) == fingerprints([one, two], RUN)


@given(st.lists(st.tuples(st.sampled_from(["GB0124", "DF02"]), st.integers(0, 5), st.text(max_size=8)), max_size=12))
def test_all_are_different(rows):
    prints = fingerprints([Subject(code, _at(line, text)) for code, line, text in rows], RUN)
    assert len(set(prints)) == len(rows)
    assert all(len(one) == 16 for one in prints)


@given(st.text(max_size=60))
def test_any_source_line_can_be_normalised(code):
    once = normal_source(code)
    assert normal_source(f"  {code}  ") == once
    assert "\n" not in once


def test_a_hash_inside_a_string_is_no_comment():
    assert normal_source('print("# not a comment")  # but this is') == 'print("# not a comment")'
    assert normal_source("for x in f(a,  # open") == "for x in f(a,"
    assert normal_source('y = f"{x}  #"   # z') == 'y = f"{x} #"'
