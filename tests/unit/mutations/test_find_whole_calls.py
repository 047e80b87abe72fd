"""Records of whole calls as findings: which cause they name, on which line, and rubbish in their place."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynadiag import report
from dynadiag.model.difference import Difference
from dynadiag.model.location import Location
from dynadiag.model.parity import ParityCall, StateChange, WholeCall
from dynadiag.model.run import Process, Run, RunInfo, SourceFunction
from dynadiag.passes.find_parity import find_parity
from dynadiag.passes.find_whole_calls import find_whole_calls
from dynadiag.render import json_report, parity_words
from dynadiag.trace.builders import ProcessBuilder, RunBuilder
from dynadiag.trace.parity import whole_call
from dynadiag.trace.values import BadRecordError

FILE = "/home/me/train.py"
TEXT = """def step(self, x, y):
    x.add_(1)
    if self.now is self.left:
        y = y * 2
    self.window.append(y)
    return self.head(x + y)
"""
OUTPUT = Difference(kind="value", where="output", index=0, name="output 0", eager="4", compiled="3", elements=1, wrong_elements=1)
CALL = WholeCall(
    process=0, callee=1, name="Net", call=2, verdict="different", where=Location(FILE, 6, "Net"), differences=(OUTPUT,), values=5
)
STALE = replace(CALL, right_when={"anew": True})
SHARED = StateChange(what="shared memory", name="arguments[0] and arguments[1]", was="", now="overlap")


def run(*calls, graphs=()):
    functions = (SourceFunction(file=FILE, line=7, name="Net.step", text=TEXT),)  # a decorator stands above
    process = Process(index=0, log="a.log", hooks={"parity": "ok"})
    return Run(info=RunInfo(), processes=(process,), functions=functions, whole_calls=calls, parity=graphs)


def changed(what, name, was="", now="1"):
    return replace(STALE, changes=(StateChange(what=what, name=name, was=was, now=now),))


@pytest.mark.parametrize(
    ("call", "code", "line", "slug", "words"),
    [
        (changed("hooks", "step.head._forward_hooks"), "DM49", 12, "hook-before-first-call", "a forward hook was registered on self.head"),
        (changed("shadowed name", "step.head"), "DM49", 12, "assign-the-attribute", "hides what is registered as self.head"),
        (changed("identity", "step.now", "step.left", ""), "DM49", 9, "flag-not-identity", "self.now was the object of self.left"),
        (replace(STALE, changes=(SHARED,)), "DM49", 8, "no-shared-memory", "x and y share overlapping memory"),
        (STALE, "DM49", 12, "forget-what-was-compiled", "Compiled anew at this call"),
        (replace(STALE, compiled_now=True), "DM48", 12, "no-cache", "Compiled without caches it gives"),
        (
            replace(CALL, full_deques=("step.window",), right_when={"anew": False, "eager": False}),
            "DM48",
            11,
            "rebuild-the-deque",
            "drops its oldest element",
        ),
        (replace(CALL, right_when={"anew": False, "eager": False}), "DM48", 12, "keep-it-eager", "Dynamo traces the function differently"),
        (replace(CALL, right_when={"anew": False, "eager": True}), "DM48", 12, "keep-it-eager", "what follows Dynamo's trace"),
        (CALL, "DM48", 12, "keep-it-eager", "output 0: 4 in eager, 3 compiled"),
    ],
)
def test_the_cause_that_was_measured_is_named_with_its_line(call, code, line, slug, words):
    (finding,) = find_whole_calls(run(call)).findings
    assert (finding.code, finding.where.line, finding.fix[0].slug) == (code, line, slug)
    assert words in finding.why


@pytest.mark.parametrize(
    ("kind", "where", "told"),
    [("value", "output", True), ("raises", "call", True), ("value", "gradient", False), ("version", "input", False)],
)
def test_minify_is_advised_where_a_reduced_script_can_show_the_difference(kind, where, told):
    (finding,) = find_whole_calls(run(replace(CALL, differences=(replace(OUTPUT, kind=kind, where=where),)))).findings
    assert ("reduce-the-script" in [advice.slug for advice in finding.fix]) is told


def test_what_changed_is_no_cause_where_compiling_anew_did_not_help():
    call = replace(changed("hooks", "step.head._forward_hooks"), right_when={"anew": False, "eager": False})
    (finding,) = find_whole_calls(run(call)).findings
    assert finding.code == "DM48"
    assert "hook" not in finding.why


def test_a_later_call_that_differs_in_the_same_way_has_the_same_cause():
    later = replace(CALL, call=3)
    (finding,) = find_whole_calls(run(changed("identity", "step.now"), later)).findings
    assert "In calls 2, 3 of Net" in finding.why


def test_a_call_whose_graph_differs_is_the_graphs_finding_with_the_cause():
    graph = ParityCall(process=0, frame=None, graph=0, call=2, verdict="different", differences=(OUTPUT,), whole=(1, 2))
    told = run(replace(STALE, changes=(SHARED,)), graphs=(graph,))
    assert find_whole_calls(told).findings == ()
    (finding,) = find_parity(told).findings
    assert "Since it was compiled, x and y share overlapping memory; when it was compiled they shared none." in finding.why
    assert [advice.slug for advice in finding.fix] == ["no-shared-memory"]


def test_a_call_of_which_a_graph_differs_in_strides_alone_is_still_told():
    graph = ParityCall(
        process=0, frame=None, graph=0, call=2, verdict="different", differences=(replace(OUTPUT, kind="stride"),), whole=(1, 2)
    )
    assert len(find_whole_calls(run(CALL, graphs=(graph,))).findings) == 1


def test_a_call_that_raises_is_told_at_its_try_also_where_the_graph_raised_in_eager_too():
    text = "def step(x):\n    try:\n        return torch.linalg.inv(x)\n    except RuntimeError:\n        return x\n"
    raises = Difference(kind="raises", where="call", index=0, name="the call", eager="nothing", compiled="LinAlgError: singular")
    both = replace(raises, kind="both_raise")
    graph = ParityCall(process=0, frame=None, graph=0, call=2, verdict="not_compared", differences=(both,), whole=(1, 2))
    call = replace(CALL, differences=(raises,), right_when={"anew": False, "eager": False})
    told = replace(run(call, graphs=(graph,)), functions=(SourceFunction(file=FILE, line=6, name="step", text=text),))
    (finding,) = find_whole_calls(told).findings
    assert (finding.code, finding.where.line) == ("DM48", 8)
    assert "the compiled call raised LinAlgError: singular; in eager it does not" in finding.why


def test_a_generator_is_told_at_its_yield():
    text = "def parts(x):\n    log.append(1)\n    yield x\n"
    kinds = Difference(kind="state", where="output", index=0, name="the result", eager="generator of 1", compiled="tuple_iterator of 1")
    told = replace(run(replace(CALL, differences=(kinds,))), functions=(SourceFunction(file=FILE, line=6, name="parts", text=text),))
    (finding,) = find_whole_calls(told).findings
    assert finding.where.line == 8


def test_what_was_compared_is_counted():
    calls = (replace(CALL, verdict="equal"), replace(CALL, verdict="rounding", unsteady=1), CALL)
    not_compared = (replace(CALL, verdict="not_compared", why="another thread runs"), replace(CALL, verdict="not_compared", why="CUDA"))
    told = find_parity(run(*calls, *not_compared)).parity
    assert parity_words.verdict(told).startswith(
        "3 whole calls compared with the function in eager: 1 equal, 1 within rounding, 1 different, 2 callables with calls not compared; "
    )
    details = list(parity_words.details(told))
    assert "whole calls of 1 callable not compared: another thread runs" in details
    assert "1 value that eager itself does not give twice: not compared" in details
    json_report.dumps(report.build(run(*calls)))


_ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


class FakeRecord:
    """A record with these facts."""

    payload_length = 10

    def __init__(self, facts):
        self._facts = facts

    def object(self):
        return self._facts


@given(
    st.fixed_dictionaries(
        {"callee": st.integers(0, 9) | _ANY, "call": st.integers(0, 9) | _ANY, "verdict": st.just("different") | _ANY},
        optional=dict.fromkeys(("name", "file", "line", "differences", "changes", "full_deques", "right_when", "values"), _ANY),
    )
)
def test_rubbish_in_a_record_is_refused_or_read(facts):
    builder = RunBuilder()
    process = ProcessBuilder(0, "a.log", 0)
    try:
        whole_call(builder, process, FakeRecord(facts))
    except BadRecordError:
        return
    told = run(*builder.whole_calls)
    json_report.dumps(report.build(told))
