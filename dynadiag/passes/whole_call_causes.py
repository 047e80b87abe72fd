"""Why a whole call differs from eager, as far as it was measured, and which line of the program shows it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from dynadiag.facts.statements import recorded_function
from dynadiag.facts.user_frames import of_last_run
from dynadiag.facts.wording import listed
from dynadiag.model.clauses import Basis, Cause, Clause
from dynadiag.model.difference import Difference
from dynadiag.model.location import Location
from dynadiag.model.parity import ParityCall, StateChange, WholeCall
from dynadiag.model.run import Run, SourceFunction
from dynadiag.passes.find_known_faults import HOOKS
from dynadiag.source.function import parse_function

_WHERE_WRONG = {
    "dynamo": "It differs with the back end `eager` too: Dynamo traces the function differently than Python runs it",
    "back end": "With the back end `eager` the call is right: what follows Dynamo's trace (AOTAutograd or the back end) makes it differ",
}
CauseKind = Literal["hooks", "shadowed name", "identity", "shared memory", "cache", "stale", "full deque", "dynamo", "back end", "unknown"]
_KINDS_OF_CHANGE: tuple[CauseKind, ...] = ("hooks", "shadowed name", "shared memory", "identity")
_ARGUMENT = re.compile(r"^arguments\[(\d+)\]")
_PLACES = re.compile(r"\barguments\[\d+\]|\bstep\.")
_DECORATORS = 8


@dataclass(frozen=True, slots=True)
class WholeCause:
    """What is behind a different call: which change of the state, or which part of the compiler."""

    kind: CauseKind
    changes: tuple[StateChange, ...] = ()
    names: tuple[str, ...] = ()

    @property
    def is_stale(self) -> bool:
        """Whether a version was used again that does not fit."""
        return self.kind in ("hooks", "shadowed name", "identity", "shared memory", "stale")


def cause_of(call: WholeCall) -> WholeCause:
    """The cause of a different call. What changed counts only where compiling the call anew was seen to give eager's result."""
    if call.right_when.get("anew"):
        if call.compiled_now:
            return WholeCause("cache", call.changes)
        for kind in _KINDS_OF_CHANGE:
            if changes := tuple(change for change in call.changes if change.what == kind):
                return WholeCause(kind, changes)
        return WholeCause("stale", call.changes)
    if call.full_deques and call.right_when.get("eager") is False:
        return WholeCause("full deque", names=call.full_deques)
    if call.right_when.get("eager") is False:
        return WholeCause("dynamo")
    if call.right_when.get("eager"):
        return WholeCause("back end")
    return WholeCause("unknown")


def cause_beyond_the_graph(graph_call: ParityCall, run: Run) -> tuple[CallPlace, WholeCause] | None:
    """Why a version or a cached graph did not fit the whole call that a wrong call of a graph was made in; None where it did fit."""
    call = None if graph_call.whole is None else _different_calls(run).get((graph_call.process, *graph_call.whole))
    cause = None if call is None else cause_of(call)
    if call is None or cause is None or not (cause.is_stale or cause.kind == "cache"):
        return None
    return CallPlace(call, run), cause


@of_last_run
def _different_calls(run: Run) -> Mapping[tuple[int, int, int], WholeCall]:
    return {(call.process, call.callee, call.call): call for call in run.whole_calls if call.verdict == "different"}


class CallPlace:
    """The function of a whole call as it was recorded: what the names of its state are in the program, and its lines."""

    def __init__(self, call: WholeCall, run: Run) -> None:
        self._call = call
        where = call.where
        recorded: SourceFunction | None = None
        if where is not None and where.line is not None:
            # A code object begins at its first decorator, a recorded function at its `def`.
            tried = (recorded_function(where.file, where.line + more, run) for more in range(_DECORATORS))
            recorded = next((item for item in tried if item is not None and item.line <= where.line + _DECORATORS), None)
        self._recorded = recorded
        function = parse_function(recorded.text) if recorded is not None else None
        arguments = function.node.args if function is not None else None
        names = [] if arguments is None else [item.arg for item in (*arguments.posonlyargs, *arguments.args)]
        self._arguments = names[1:] if names[:1] in (["self"], ["cls"]) else names

    def name(self, text: str) -> str:
        """A name of the state as the program would write it."""

        def written(match: re.Match[str]) -> str:
            if (argument := _ARGUMENT.match(match[0])) is None:
                return "self."
            at = int(argument[1])
            return self._arguments[at] if at < len(self._arguments) else f"argument {at}"

        return _PLACES.sub(written, text)

    def line(self, cause: WholeCause, differences: Sequence[Difference]) -> Location | None:
        """The line to look at first: where what changed is used, else where what differs is made, else the function."""
        if self._recorded is None:
            return self._call.where
        for pattern in self._patterns(cause, differences):
            for number, row in enumerate(self._recorded.text.split("\n")):
                if number and re.search(pattern, row) and not row.strip().startswith(("#", '"""')):
                    return self._at(number)
        if (returned := self._returned(differences)) is not None:
            return self._at(returned)
        return self._at(0)

    def _patterns(self, cause: WholeCause, differences: Sequence[Difference]) -> Iterator[str]:
        """Regular expressions of a line, the best first; what stands in them from a log is escaped."""
        for change in cause.changes:
            ends = [re.escape(self.name(part).rpartition(".")[2]) for part in change.name.split(" and ")]
            if cause.kind == "identity":
                yield rf"\b{ends[0]}\b.*\bis\b|\bis\b.*\b{ends[0]}\b"
            if cause.kind in ("shared memory", "cache"):
                yield from (_writing(end) for end in ends)
            if cause.kind == "hooks":
                owner = re.escape(self.name(change.name).rpartition(".")[0].rpartition(".")[2])
                yield rf"\b{owner}\("
            yield from (rf"\b{end}\b" for end in ends)
        for name in cause.names:
            end = re.escape(self.name(name).rpartition(".")[2])
            yield rf"\b{end}\.(append|appendleft|extend|insert)\("
        if cause.kind == "dynamo":
            yield r"\bis_(dynamo_)?compiling\("
        if any("generator" in difference.eager for difference in differences):
            yield r"\byield\b"
        for difference in differences:
            name = re.escape(self.name(difference.name).rpartition(".")[2])
            if difference.kind == "version":
                yield rf"\b{name}\.(data|detach\(\))"
            if difference.kind == "version" or difference.where == "input":
                yield _writing(name)
            if difference.where in ("attribute", "input") and name.isidentifier():
                yield rf"\b{name}\b"

    def _returned(self, differences: Sequence[Difference]) -> int | None:
        """The last `return` where an output differs; where the call raised, what stands in its `try`."""
        assert self._recorded is not None
        function = parse_function(self._recorded.text)
        tries = [] if function is None else list(function.nodes(ast.Try))
        if tries and any(difference.where == "call" for difference in differences):
            return tries[0].body[0].lineno - 1
        returns = [] if function is None else list(function.nodes(ast.Return))
        outputs = any(difference.where in ("output", "gradient") for difference in differences)
        return returns[-1].lineno - 1 if outputs and returns else None

    def _at(self, number: int) -> Location:
        assert self._recorded is not None
        row = self._recorded.text.split("\n")[number]
        return Location(self._recorded.file, self._recorded.line + number, self._recorded.name, row.strip())


def _writing(name: str) -> str:
    return rf"\b{name}\.(\w+\.)*\w+_\(|\b{name}\b[\w.\[\], :]*\]\s*=[^=]|\b{name}\b[\w.\[\]]*\s*[-+*/@|&]="


def _change_in_words(change: StateChange, place: CallPlace) -> str:
    """What changed, as a sentence without its end."""
    name = place.name(change.name)
    if change.what == "hooks":
        owner, _, kind = name.rpartition(".")
        did = "was registered on" if not change.was else "was taken from" if not change.now else "is another on"
        return f"a {HOOKS.get(kind, 'hook')} {did} {owner}"
    if change.what == "shadowed name":
        return f"the instance dictionary got an entry `{name.rpartition('.')[2]}`, which hides what is registered as {name}"
    if change.what == "identity":
        was, now = (f"the object of {place.name(text)}" if text else "an object of its own" for text in (change.was, change.now))
        return f"{name} was {was}, now it is {now}"
    if change.what == "shared memory":
        how = "no memory" if not change.now else "one tensor" if change.now == "same tensor" else "overlapping memory"
        before = "none" if not change.was else "one tensor" if change.was == "same tensor" else "overlapping memory"
        return f"{name} share {how}; when it was compiled they shared {before}"
    return f"{name} changed"


def _changes_in_words(cause: WholeCause, place: CallPlace) -> str:
    """All that changed."""
    return listed([_change_in_words(change, place) for change in cause.changes[:3]])


def names_of(cause: WholeCause, place: CallPlace) -> str:
    """What changed or is to be changed, by its names in the program."""
    return listed([place.name(text) for text in (*(change.name for change in cause.changes), *cause.names)]) or "what changed"


def clauses_of(cause: WholeCause, place: CallPlace) -> Iterator[Clause]:
    """What changed, and what was measured."""
    if cause.changes:
        yield Cause(f"Since it was compiled, {_changes_in_words(cause, place)}")
    if cause.is_stale:
        yield Basis("Compiled anew at this call, without caches, it gives eager's result")
    elif cause.kind == "cache":
        yield Basis("Compiled without caches it gives eager's result")
    elif cause.kind == "full deque":
        yield Cause("An append to a full deque drops its oldest element, but the graph keeps it")
    elif cause.kind in _WHERE_WRONG:
        yield Basis(_WHERE_WRONG[cause.kind])


def named(difference: Difference, place: CallPlace) -> Difference:
    """The difference under the program's own name."""
    return replace(difference, name=place.name(difference.name))
