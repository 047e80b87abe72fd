"""Records of compared calls as findings, and rubbish in their place."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynadiag import report
from dynadiag.model.difference import Difference
from dynadiag.model.location import Location
from dynadiag.model.parity import ParityCall, ParityWrite
from dynadiag.model.run import CompileKey, Frame, Process, Run, RunInfo
from dynadiag.passes.find_mutations import find_mutations
from dynadiag.passes.find_parity import find_parity
from dynadiag.render import json_report, markdown, parity_words
from dynadiag.trace.builders import ProcessBuilder, RunBuilder
from dynadiag.trace.parity import parity
from dynadiag.trace.values import BadRecordError

FILE = "/home/me/train.py"
WRITE = Location(FILE, 8, "fn", "x.mul_(2)")
MADE = Location(FILE, 9, "fn", "return x + y")
FRAME = Frame(id="f0", key=CompileKey(0, 0, 0, 0), attempts=1, name="fn", file=FILE, line=7, outcome="compiled")
EQUAL = ParityCall(process=0, frame="f0", graph=0, call=1, verdict="equal", random_values=1)
VALUE = Difference(
    kind="value",
    where="output",
    index=0,
    name="output 0",
    eager="4",
    compiled="3",
    elements=4,
    wrong_elements=2,
    first_wrong=(0,),
    largest=1.0,
    stack=(MADE,),
)
AFTER = replace(VALUE, where="input", index=1, name="L['y']", stack=())
WRITES = (ParityWrite(input="L['x']", declared=True, op="mul_", stack=(WRITE,)),)
SHARED = (("L['x']", "L['y']", "overlap"),)


def run(*calls):
    return Run(info=RunInfo(), processes=(Process(index=0, log="a.log", hooks={"parity": "ok"}),), frames=(FRAME,), parity=calls)


def different(*differences, **facts):
    return replace(EQUAL, call=2, verdict="different", differences=differences, **facts)


def found(*calls):
    return [(one.code, one.where.line if one.where else None, one.severity) for one in find_parity(run(*calls)).findings]


def test_without_parity_nothing_is_said():
    plain = replace(run(), processes=(Process(index=0, log="a.log"),))
    assert find_parity(plain).parity is None
    assert json_report.to_dict(report.build(plain))["parity_why"].endswith("the script was not run with --parity")


def test_equal_calls_are_counted():
    told = find_parity(run(EQUAL, replace(EQUAL, call=2), replace(EQUAL, graph=1, verdict="not_compared", why="a collective")))
    assert told.findings == ()
    assert (told.parity.graphs_compared, told.parity.calls_equal, told.parity.random_values) == (1, 2, 1)
    assert [(one.why, one.graphs) for one in told.parity.not_compared] == [("a collective", 1)]


def test_an_output_is_told_on_its_line_or_on_the_write_that_overlaps():
    assert found(different(VALUE)) == [("DM41", 9, "error")]
    assert found(different(VALUE, writes=WRITES)) == [("DM41", 9, "error")]
    assert found(different(VALUE, writes=WRITES, shared=SHARED)) == [("DM40", 8, "error")]


def test_an_input_is_told_with_its_write_and_takes_the_outputs_with_it():
    writes = (ParityWrite(input="L['y']", declared=False, op="lib.bump", stack=(WRITE,)),)
    (one,) = find_parity(run(different(AFTER, VALUE, writes=writes), different(AFTER, writes=writes))).findings
    assert (one.code, one.where, one.cost.value) == ("DM40", WRITE, 1)
    assert "lib.bump writes y without declaring it" in one.why
    assert "output 0 at [0]: 4 in eager, 3 compiled" in one.why
    assert one.fix[0].slug == "declare-the-write"


@pytest.mark.parametrize(("kind", "code"), [("dtype", "DM42"), ("alias", "DM43"), ("raises", "DM44"), ("accepts", "DM47")])
def test_other_kinds_have_codes_of_their_own(kind, code):
    assert found(different(replace(VALUE, kind=kind))) == [(code, 9 if kind != "raises" else 7, "error")]


def test_outputs_that_only_lie_otherwise_in_memory_are_one_warning():
    others = [replace(VALUE, kind="stride", index=at) for at in (0, 1, 2)]
    (one,) = find_parity(run(different(*others))).findings
    assert (one.code, one.severity, one.title) == ("DM42", "warning", "3 outputs have different strides than in eager")
    assert [advice.slug for advice in one.fix] == ["ask-for-the-layout"]
    (alone,) = find_parity(run(different(others[0]))).findings
    assert alone.title == "Output 0 has a different stride than in eager"


def test_the_verdict_says_of_how_many_different_calls_the_values_are_those_of_eager():
    stride = replace(VALUE, kind="stride")
    for calls, said in {
        (EQUAL, different(stride), different(stride, stride)): "1 equal within rounding, 2 different in strides only",
        (different(stride), different(VALUE), different(stride, VALUE)): "0 equal within rounding, 3 different, 1 of them in strides only",
        (different(stride, more_differences=1), different()): "0 equal within rounding, 2 different",
    }.items():
        assert parity_words.verdict(report.build(run(*calls)).parity) == f"{len(calls)} calls of 1 graph compared with eager: {said}"


def test_it_comes_first_and_fits_the_schema():
    made = report.build(run(EQUAL, different(AFTER, VALUE, writes=WRITES, shared=SHARED)))
    assert made.findings[0].code == "DM40"
    schema = json.loads((Path(__file__).parents[3] / "docs" / "report.schema.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(json_report.to_dict(made))
    assert "2 calls of 1 graph compared with eager: 1 equal within rounding, 1 different" in markdown.render(made)


class FakeRecord:
    """A record with these facts."""

    header = {"frame_id": 0, "frame_compile_id": 0}
    payload_length = 0

    def __init__(self, facts):
        self._facts = facts

    def object(self):
        return self._facts


PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
RUBBISH = st.recursive(PLAIN, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=5)
NAMES = ("why", "shared", "differences", "writes", "more_differences", "random_values", "epoch", "graph", "call", "verdict")
KEYS = ("kind", "where", "index", "name", "eager", "stack", "first_wrong", "largest", "inputs", "how")
ENTRY = st.dictionaries(st.sampled_from(KEYS), RUBBISH)


@given(st.dictionaries(st.sampled_from(NAMES), RUBBISH | st.lists(ENTRY)), st.booleans())
def test_rubbish_is_refused_or_read(facts, good):
    builder = RunBuilder()
    process = ProcessBuilder(0, "a.log", 0)
    if good:
        facts |= {"graph": 0, "call": 1, "verdict": "different"}
    try:
        parity(builder, process, FakeRecord(facts))
    except BadRecordError:
        assert not good
    json_report.dumps(report.build(replace(run(), parity=tuple(builder.parity))))


def test_a_write_that_an_operator_did_not_declare_is_a_mutation_of_its_own():
    hidden = ParityWrite(input="L['y']", declared=False, op="lib.bump", stack=(WRITE,))
    (one,) = find_mutations(run(replace(EQUAL, writes=(hidden,)), replace(EQUAL, call=2, writes=(hidden,)))).mutations
    assert (one.code, one.input, one.worst, one.sites[0]["line"]) == ("DM24", "L['y']", None, 8)
    assert [(effect["kind"], effect["basis"], "condition" in effect) for effect in one.effects] == [("silent_wrong", "predicted", True)]
    wrong = find_mutations(run(replace(EQUAL, writes=(hidden,)), different(AFTER, writes=(hidden,)))).mutations
    assert [one.code for one in wrong] == ["DM40"]
