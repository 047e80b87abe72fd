"""What `explain --parity` saw of whole calls: those that differ from the original function in eager, with the cause that was measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from dynadiag.advice.whole_calls import whole_call_advice
from dynadiag.facts.fingerprint import Subject, fingerprint
from dynadiag.facts.wording import listed, plural, unique
from dynadiag.model import codes
from dynadiag.model.clauses import Basis, Clause, Happened
from dynadiag.model.difference import Difference
from dynadiag.model.location import Location
from dynadiag.model.parity import NotCompared, WholeCall, WholeCalls
from dynadiag.model.report import Cost, Finding, PassResult
from dynadiag.model.run import Run
from dynadiag.passes.base import Priority
from dynadiag.passes.find_known_faults import registration_of
from dynadiag.passes.parity_calls import in_words, wrong_things
from dynadiag.passes.whole_call_causes import CallPlace, WholeCause, cause_of, clauses_of, named, names_of

WHOLE_CALL_CODES = (codes.WHOLE_CALL_DIFFERS, codes.USED_AGAIN_THOUGH_CHANGED)
_MOST_TOLD = 3
_COMPARED_ALONE = frozenset(("value", "dtype", "shape", "requires_grad", "autograd", "state", "missing", "raises", "accepts"))
_ORDER = ("call", "output", "gradient", "input", "attribute")
Key = tuple[object, ...]


def find_whole_calls(run: Run) -> PassResult:
    """One finding for each cause and callable; none for a call of which a graph alone was seen to differ, unless the state explains it."""
    in_graphs = {
        (wrong.call.process, *wrong.call.whole)
        for wrong in wrong_things(run)
        if wrong.call.whole is not None and wrong.difference.kind != "stride"
    }
    asked: dict[tuple[int, int], list[WholeCall]] = {}
    groups: dict[Key, list[WholeCall]] = {}
    causes: dict[Key, WholeCause] = {}
    for call in run.whole_calls:
        if call.verdict != "different":
            continue
        earlier = asked.setdefault((call.process, call.callee), [])
        cause = _known_cause(call, earlier)
        if call.right_when:
            earlier.append(call)
        if (call.process, call.callee, call.call) in in_graphs:
            continue
        key = call.process, call.callee, cause.kind, tuple(change.name for change in cause.changes)
        groups.setdefault(key, []).append(call)
        causes.setdefault(key, cause)
    return PassResult(findings=tuple(_finding(group, causes[key], run) for key, group in groups.items()))


def _known_cause(call: WholeCall, asked: Sequence[WholeCall]) -> WholeCause:
    """Its own cause; of a call that was not asked, that of an earlier one of the same callable that differs in the same way."""
    cause = cause_of(call)
    if cause.kind != "unknown":
        return cause
    return next((cause_of(other) for other in asked if _kinds(other) == _kinds(call)), cause)


def _kinds(call: WholeCall) -> set[tuple[str, str, str]]:
    return {(difference.kind, difference.where, difference.name) for difference in call.differences}


def _finding(group: Sequence[WholeCall], cause: WholeCause, run: Run) -> Finding:
    first = group[0]
    place = CallPlace(first, run)
    differences = [named(item, place) for item in sorted(first.differences, key=rank_of_difference)]
    where = _changing_line(first, cause, run) or place.line(cause, first.differences)
    code = codes.USED_AGAIN_THOUGH_CHANGED if cause.is_stale else codes.WHOLE_CALL_DIFFERS
    return Finding(
        id="",
        fingerprint=fingerprint(Subject(code, where, f"{first.name} {cause.kind}"), run),
        code=code,
        severity="error",
        title=_title(first, cause, differences),
        where=where,
        clauses=tuple(_clauses(group, cause, differences, place)),
        fix=whole_call_advice(cause.kind, names_of(cause, place), reducible=any(map(_shows_alone, first.differences))),
        cost=Cost(value=float(len(group)), unit="calls", basis="counted"),
        evidence=(),
        rank=(float(Priority.WRONG_RESULT), float(int(code[2:])), -float(len(group))),
    )


def _changing_line(call: WholeCall, cause: WholeCause, run: Run) -> Location | None:
    """The line that registered the hook or wrote the instance dictionary; None where another thing changed, or where it was not seen."""
    if (written := next((change.where for change in cause.changes if change.where is not None), None)) is not None:
        return written
    kinds = {change.name.rpartition(".")[2] for change in cause.changes} if cause.kind == "hooks" else set()
    late = [state for state in run.unguarded if state.what == "late hook" and state.process == call.process and state.kind in kinds]
    return next((line for state in late if (line := registration_of(state, run)) is not None), None)


def _shows_alone(difference: Difference) -> bool:
    """Whether the reproducer of `minify --kind wrong_call` sees it (`reduce/reproducer/compared_calls.py`)."""
    return difference.where in ("call", "output", "input") and difference.kind in _COMPARED_ALONE


def rank_of_difference(difference: Difference) -> int:
    """What a call raises before what it gives, and that before what it leaves."""
    return _ORDER.index(difference.where) if difference.where in _ORDER else len(_ORDER)


def _title(call: WholeCall, cause: WholeCause, differences: Sequence[Difference]) -> str:
    if cause.is_stale:
        changed = {"hooks": "its hooks", "shadowed name": "an instance dictionary", "identity": "which object a name means"}
        what = changed.get(cause.kind, "how its inputs share memory" if cause.kind == "shared memory" else "its state")
        return f"Silently wrong: {call.name} runs a version compiled before {what} changed"
    if cause.kind == "cache":
        return f"Silently wrong: {call.name} got a compiled graph from the cache that does not fit"
    if cause.kind == "full deque":
        return f"Silently wrong: in compiled code {listed(cause.names)} grows beyond its maxlen".replace("step.", "self.")
    first = differences[0] if differences else None
    if first is not None and first.where == "call":
        return f"{call.name} raises otherwise than in eager"
    if any(item.kind in ("autograd", "requires_grad") for item in differences):
        return f"Silently wrong: the result of {call.name} carries no gradient, in eager it does"
    if first is not None and first.where == "gradient":
        return f"Silently wrong: gradients through {call.name} differ from eager's"
    if first is not None and first.where == "output":
        return f"Silently wrong: {call.name} gives another result than in eager"
    return f"{call.name} leaves another state than in eager"


def _clauses(group: Sequence[WholeCall], cause: WholeCause, differences: Sequence[Difference], place: CallPlace) -> Iterator[Clause]:
    first = group[0]
    numbers = unique(str(call.call) for call in group)
    told = [_words(item) for item in islice(differences, _MOST_TOLD)]
    more = len(differences) + first.more_differences - len(told)
    rest = f"; and {plural(more, 'more difference')}" if more > 0 else ""
    yield Happened(f"In call{'s' if len(numbers) > 1 else ''} {listed(numbers)} of {first.name}: {'; '.join(told)}{rest}")
    if any(item.where == "gradient" and item.kind == "value" for item in differences[:_MOST_TOLD]):
        yield Basis("Each gradient is that of a fixed weighted sum of the results, in eager and compiled alike")
    yield from clauses_of(cause, place)


def _words(difference: Difference) -> str:
    """The difference as a sentence without its end."""
    if difference.kind == "raises":
        return f"the compiled call raised {difference.compiled}; in eager it does not"
    if difference.kind == "accepts":
        return f"in eager it raised {difference.eager}; the compiled call {difference.compiled}"
    if difference.where == "output" and difference.kind in ("state", "alias", "missing", "autograd"):
        return f"{difference.name}: {difference.eager} in eager, {difference.compiled} compiled"
    if difference.where == "gradient" and difference.kind != "value":
        given = ["a gradient" if text.startswith("a tensor") else "no gradient" for text in (difference.eager, difference.compiled)]
        return f"the gradient of {difference.name}: {given[0]} in eager, {given[1]} compiled"
    if difference.where == "attribute":
        return f"{difference.name} after the call: {difference.eager} in eager, {difference.compiled} compiled"
    return in_words(difference)


def whole_calls(run: Run) -> WholeCalls | None:
    """What was compared; None where no whole call was looked at."""
    if not run.whole_calls:
        return None
    verdicts = [call.verdict for call in run.whole_calls]
    reasons: dict[str, set[tuple[int, int]]] = {}
    for call in run.whole_calls:
        if call.verdict == "not_compared":
            reasons.setdefault(call.why or "no reason was recorded", set()).add((call.process, call.callee))
    return WholeCalls(
        equal=verdicts.count("equal"),
        rounding=verdicts.count("rounding"),
        different=tuple(call for call in run.whole_calls if call.verdict == "different"),
        not_compared=tuple(NotCompared(why=why, graphs=len(callees), frames=()) for why, callees in reasons.items()),
        random_values=sum(call.random_values for call in run.whole_calls),
        unsteady=sum(call.unsteady for call in run.whole_calls),
    )
