"""Which findings are about code that is compiled by itself only because of a graph break, and the order that this gives."""

from dataclasses import replace

import pytest

from dynadiag.facts.standing_behind import causes_of
from dynadiag.graphs.generations import generations
from dynadiag.model import CompileKey, Finding, Frame, GraphBreak, Location, Recompile, Run, RunInfo

FILE, LIBRARY = "/home/me/train.py", "/opt/env/lib/python3.12/site-packages/other/adam.py"
WRAPPER = Location("/opt/env/lib/python3.12/site-packages/torch/_dynamo/eval_frame.py", 1265, "compile_wrapper")
MAIN, BROKE = Location(FILE, 20, "<module>"), Location(FILE, 13, "update")


def frame(number, name, *callers, file=FILE, process=0):
    key = CompileKey(process, 0, number, 0)
    return Frame(id=f"f{number}", key=key, attempts=1, name=name, file=file, line=9, outcome="compiled", callers=callers)


def site(name, frames, *stack, **more):
    return GraphBreak(
        id=name, fingerprint=name, gb_id=None, category="", reason="", explanation=None, hints=(), own_frame=None, torch_frame=None,
        stack=stack, events=1, frames=frames, **more,
    )  # fmt: skip


def finding(number, *evidence):
    return Finding(
        id=f"n{number}", fingerprint=f"mark{number}", code="DR01", severity="warning", title="", where=None, clauses=(), fix=(), cost=None,
        evidence=evidence,
    )  # fmt: skip


def causes(frames, breaks, recompiled, more=()):
    """What the recompiles of these frames stand behind; breaks are found as n1, n2, ..."""
    recompiles = [Recompile(id=f"r{at}", fingerprint="", frame=name, reasons=(), changed=()) for at, name in enumerate(recompiled)]
    findings = [finding(at, item.id) for at, item in enumerate(breaks, start=1)]
    findings.append(finding(9, *(item.id for item in recompiles), *more))
    return causes_of(findings, breaks, recompiles, (), Run(info=RunInfo(), frames=tuple(frames)))


CALLER = frame(0, "update", MAIN, WRAPPER)


@pytest.mark.parametrize(
    ("callers", "expected"),
    [
        ((MAIN, WRAPPER, BROKE), {"n9": ("n1",)}),
        ((MAIN, BROKE), {"n9": ("n1",)}),  # torch's own frames are not in every record
        ((MAIN, WRAPPER, BROKE, Location(LIBRARY, 79, "wrapper")), {"n9": ("n1",)}),
        ((MAIN, WRAPPER, replace(BROKE, line=14)), {}),
        ((replace(MAIN, line=30), WRAPPER, BROKE), {}),  # another call of it, which may be in eager
        ((BROKE,), {}),
    ],
)
def test_what_is_called_from_the_line_that_broke(callers, expected):
    for stack in ((MAIN, BROKE), (MAIN, BROKE, Location(LIBRARY, 5, "step"))):
        assert causes([CALLER, frame(1, "step", *callers, file=LIBRARY)], [site("b1", ("f0",), *stack)], ["f1"]) == expected


def test_another_process_is_another_call():
    frames = [CALLER, frame(1, "step", MAIN, BROKE, process=1)]
    assert causes(frames, [site("b1", ("f0",), MAIN, BROKE)], ["f1"]) == {}


def test_what_goes_on_after_a_break_and_all_of_it():
    frames = [CALLER, frame(1, "torch_dynamo_resume_in_update_at_13", MAIN, BROKE), frame(2, "other", MAIN)]
    breaks = [site("b1", ("f0",), MAIN, replace(BROKE, line=12), resume_frames=("f1",))]
    assert causes(frames, breaks, ["f1"]) == {"n9": ("n1",)}
    assert causes(frames, breaks, ["f1", "f2"]) == {}  # one of both is compiled in any case


def test_what_a_function_that_was_left_eager_calls():
    frames = [CALLER, frame(1, "step", MAIN, WRAPPER, replace(BROKE, line=16, function="Net.update")), frame(2, "step", MAIN, BROKE)]
    skipped = [site("b1", ("f0",), MAIN, BROKE, skipped_frames=("f0",))]
    assert causes(frames, skipped, ["f1"]) == causes(frames, skipped, ["f2"]) == {"n9": ("n1",)}
    assert causes([*frames, frame(3, "step", MAIN, replace(BROKE, function="eval"))], skipped, ["f3"]) == {}


def test_a_break_behind_a_break_and_none_behind_itself():
    frames = [CALLER, frame(1, "torch_dynamo_resume_in_update_at_13", MAIN, BROKE)]
    breaks = [site("b1", ("f0",), MAIN, BROKE, resume_frames=("f1",)), site("b2", ("f1",), MAIN, BROKE, replace(BROKE, line=15))]
    assert causes(frames, breaks, ["f1"]) == {"n2": ("n1",), "n9": ("n1",)}
    again = [site("b1", ("f1",), MAIN, BROKE, resume_frames=("f1",))]
    assert causes(frames, again, []) == {}


def test_causes_come_before_what_stands_behind_them():
    assert generations({}) == {}
    assert generations({"c": ["b"], "b": ["a"], "d": ["a", "c"]}) == {"a": 0, "b": 1, "c": 2, "d": 3}
    assert generations({"b": ["a", "c"], "c": ["b"], "d": ["c"]}) == {"a": 0, "b": 1, "c": 1, "d": 2}
