"""What `explain --parity` saw happen: results of compiled calls, or their inputs afterwards, that eager does not give."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from dynadiag.advice.parity import parity_advice
from dynadiag.advice.uncaught import TRY_OUTSIDE
from dynadiag.advice.whole_calls import whole_call_advice
from dynadiag.facts.fingerprint import Subject, fingerprint
from dynadiag.facts.graph_writes import PRIVATE_OPERATOR
from dynadiag.facts.guard_sources import readable
from dynadiag.facts.user_frames import source_function
from dynadiag.facts.wording import frame_location, plural, unique
from dynadiag.model import codes
from dynadiag.model.clauses import Cause, Clause, Happened
from dynadiag.model.parity import NotCompared, Parity, ParityCall
from dynadiag.model.report import Cost, Finding, PassResult
from dynadiag.model.run import Frame, Run
from dynadiag.passes.base import Priority
from dynadiag.passes.find_whole_calls import whole_calls
from dynadiag.passes.parity_calls import Wrong, calls_in_words, in_words, sharing_in_words, wrong_things
from dynadiag.passes.whole_call_causes import cause_beyond_the_graph, clauses_of, names_of

NOT_SHOWN = (
    "Comparing graphs cannot show guards on Python state that should have failed, replayed Python side effects, or effects across graphs; "
    "whole calls show them. `dynadiag parity` tries other calls."
)
TITLES = {
    codes.WRONG_INPUT: "Silently wrong: after the call, {what} differs from eager's",
    codes.WRONG_OUTPUT: "Silently wrong: the values of {what} differ from eager's",
    codes.OTHER_METADATA: "{what} has a different {kind} than in eager",
    codes.OTHER_ALIASES: "{what} aliases memory differently than in eager",
    codes.RAISES_WHERE_EAGER_DOES_NOT: "The compiled call raises where eager does not",
    codes.OVERWRITTEN_LATER: "Overwritten by a later call: {what}, which the program still holds",
    codes.WRONG_GRADIENT: "Silently wrong: the gradient of {what} differs from eager's",
    codes.DOES_WHAT_EAGER_REFUSES: "The compiled call succeeds where eager raises",
}
_MOST_TOLD = 4
Key = tuple[object, ...]


def find_parity(run: Run) -> PassResult:
    """One finding for each input or output that compiled calls of a function got wrong, and what was compared; nothing without --parity."""
    if not run.parity and not any(process.hooks.get("parity") == "ok" for process in run.processes):
        return PassResult(notes=tuple(_not_installed(run)))
    groups: dict[Key, list[Wrong]] = {}
    for wrong in wrong_things(run):
        groups.setdefault(_key(wrong, run), []).append(wrong)
    return PassResult(parity=_parity(run), findings=tuple(_finding(_sorted(group), run) for group in groups.values()))


def _not_installed(run: Run) -> Iterator[str]:
    for process in run.processes:
        if (why := process.hooks.get("parity")) is not None:
            yield f"--parity compared nothing: {why.removeprefix('TorchUnsupportedError: ')}."


def _key(wrong: Wrong, run: Run) -> Key:
    """What makes differences of several calls and compilations one: the function, the input or output, and the line."""
    frame = run.frame(wrong.call.frame) if wrong.call.frame else None
    function = (frame.file, source_function(frame.name)) if frame is not None else (wrong.call.process, wrong.call.graph)
    if wrong.code == codes.WRONG_GRADIENT:
        return wrong.code, function
    if _only_strides(wrong):
        return wrong.code, function, "stride"
    line = (wrong.where.file, wrong.where.line) if wrong.where is not None else None
    subject = wrong.input or (wrong.difference.index, wrong.difference.kind)
    return wrong.code, function, subject, line


def _only_strides(wrong: Wrong) -> bool:
    """Whether an output lies in memory in another order: its values are right, and often nobody sees it."""
    return wrong.code == codes.OTHER_METADATA and wrong.difference.kind == "stride"


def _sorted(group: list[Wrong]) -> list[Wrong]:
    """Of gradients, which one wrong place spreads over many inputs, the smallest first; else as they came."""
    return sorted(group, key=lambda wrong: wrong.difference.elements or 0) if group[0].code == codes.WRONG_GRADIENT else group


def _finding(group: Sequence[Wrong], run: Run) -> Finding:
    first = group[0]
    frame = run.frame(first.call.frame) if first.call.frame else None
    where = first.where or (None if frame is None else frame_location(frame))
    calls = [wrong.call for wrong in group]
    beyond = cause_beyond_the_graph(first.call, run)
    name = first.input or (first.difference.name if first.code == codes.OVERWRITTEN_LATER else f"output {first.difference.index}")
    return Finding(
        id="",
        fingerprint=fingerprint(Subject(first.code, where, name), run),
        code=first.code,
        severity="warning" if _only_strides(first) else "error",
        title=_title(group, name),
        where=where,
        clauses=(*_clauses(group, frame), *(() if beyond is None else clauses_of(beyond[1], beyond[0]))),
        fix=whole_call_advice(beyond[1].kind, names_of(beyond[1], beyond[0]))
        if beyond is not None
        else (TRY_OUTSIDE,)
        if first.difference.kind == "both_raise"
        else parity_advice(
            first.code,
            first.input,
            bool(first.call.shared),
            _undeclared(first),
            custom=any(PRIVATE_OPERATOR.match(op) for graph in run.graphs if graph.frame == first.call.frame for op in graph.ops),
            strides=_only_strides(first),
        ),
        cost=Cost(value=float(len(set(map(_of_call, calls)))), unit="calls", basis="counted"),
        evidence=unique(call.frame for call in calls if call.frame)[:20],
        rank=(float(_rank(first)), float(int(first.code[2:])), -float(len(group))),
    )


def _rank(wrong: Wrong) -> Priority:
    if _only_strides(wrong):
        return Priority.RECOMPILED
    return Priority.FAILED if wrong.code == codes.RAISES_WHERE_EAGER_DOES_NOT else Priority.WRONG_RESULT


def _title(group: Sequence[Wrong], name: str) -> str:
    wrong = group[0]
    outputs = len({item.difference.index for item in group})
    if _only_strides(wrong) and outputs > 1:
        return f"{outputs} outputs have different strides than in eager"
    if wrong.code == codes.WRONG_INPUT and wrong.difference.where == "output":
        return (
            f"Silently wrong: output {wrong.difference.index}, which depends on memory shared with the written {readable(str(wrong.input))}"
        )
    if wrong.difference.kind == "requires_grad" and wrong.difference.eager == "True":
        return f"Silently wrong: {readable(name)} carries no gradient, in eager it does"
    title = TITLES[wrong.code].format(what=readable(name), kind=wrong.difference.kind.replace("_", " "))
    return title[:1].upper() + title[1:]


def _of_call(call: ParityCall) -> tuple[int, int, int]:
    return call.process, call.graph, call.call


def _undeclared(wrong: Wrong) -> str | None:
    """The operator that writes this input without saying so."""
    return next((write.op for write in wrong.call.writes if write.input == wrong.input and not write.declared), None)


def _clauses(group: Sequence[Wrong], frame: Frame | None) -> Iterator[Clause]:
    first = group[0]
    whose = f" of {source_function(frame.name)}" if frame is not None and frame.name else ""
    others = islice((difference for difference in first.call.differences if difference is not first.difference), _MOST_TOLD - 1)
    told = [in_words(item) for item in (first.difference, *others)]
    more = len(first.call.differences) + first.call.more_differences - len(told)
    rest = f"; and {plural(more, 'more difference')}" if more > 0 else ""
    part = "the backward of " if first.call.backward else ""
    if first.difference.kind == "both_raise":
        told = told[:1]
    yield Happened(f"In {part}{calls_in_words(wrong.call for wrong in group)}{whose}: {'; '.join(told)}{rest}")
    if (sharing := sharing_in_words(first.call)) is not None:
        yield Cause(f"In that call {sharing}")
    if (hidden := _undeclared(first)) is not None:
        yield Cause(f"{hidden} writes {readable(str(first.input))} without declaring it")


def _parity(run: Run) -> Parity:
    judged = [call for call in run.parity if call.verdict != "not_compared"]
    compared = [call for call in judged if not call.backward]
    backwards = [call for call in judged if call.backward]
    reasons: dict[str, list[ParityCall]] = {}
    for call in run.parity:
        if call.verdict == "not_compared":
            reasons.setdefault(call.why or "no reason was recorded", []).append(call)
    return Parity(
        graphs_compared=len({(call.process, call.graph) for call in compared}),
        calls_equal=sum(call.verdict == "equal" for call in compared),
        calls_different=sum(call.verdict == "different" for call in compared),
        not_compared=tuple(_not_compared(why, calls) for why, calls in reasons.items()),
        random_values=_random(compared) + _random(backwards),
        different=tuple(call for call in judged if call.verdict == "different"),
        not_shown=NOT_SHOWN,
        gradients_equal=sum(call.verdict == "equal" for call in backwards),
        gradients_different=sum(call.verdict == "different" for call in backwards),
        no_backward=_no_backward(run),
        whole_calls=whole_calls(run),
    )


def _no_backward(run: Run) -> int:
    """Calls that waited for their backward, of which nothing was heard again."""
    heard = {_of_call(call) for call in run.parity if call.backward}
    return len({_of_call(call) for call in run.parity if call.awaits_backward} - heard)


def _random(calls: Sequence[ParityCall]) -> int:
    """Each output once a graph, however many of its calls were compared."""
    most: dict[tuple[int, int], int] = {}
    for call in calls:
        key = call.process, call.graph
        most[key] = max(most.get(key, 0), call.random_values)
    return sum(most.values())


def _not_compared(why: str, calls: Sequence[ParityCall]) -> NotCompared:
    graphs = {(call.process, call.graph) for call in calls}
    return NotCompared(why=why, graphs=len(graphs), frames=unique(call.frame for call in calls if call.frame)[:20])
