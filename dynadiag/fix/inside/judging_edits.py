"""Whether a program does the same after anybody's edit: compared by what both versions have, since names and functions may change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Any

import torch

from dynadiag.fix.inside.judging import PROGRAM, Call, difference_of_entries, given_at_first

_REQUIRED = frozenset(("parameter", "parameter gradient", "optimizer"))
"""What both versions have to have at their end. Other names (globals, attributes, buffers) an edit may add or take away."""
_GIVEN = frozenset(("given", "value given", "mode"))
_NAMED_BY_TEXT = frozenset(("lengths", "rebound", "shared memory"))
"""Entries that list names or containers of the source, which an edit changes."""
_PLAIN_NUMBERS = (bool, int, float)


@dataclass(kw_only=True)
class EditComparison:
    """`difference` is the first thing that differs (None: nothing); `calls` how many calls of each callable were compared.

    `program` is how many values of each kind both versions had at their end, and how many only one of them had (`only one`). `left_out`
    says of callables that both compile why their calls could not be compared.
    """

    difference: str | None = None
    calls: dict[str, int] = field(default_factory=dict)
    program: dict[str, int] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """For one line between processes."""
        return asdict(self)


def compared_with_edit(
    reference: Sequence[Call],
    edited: Sequence[Call],
    again: Sequence[Call] = (),
    noisy: Sequence[Sequence[Call]] = (),
    *,
    rounds: bool = False,
) -> EditComparison:
    """The calls of the callables that both versions compile and call with the same values, and what the program has made at its end.

    `again` and `noisy` are further runs of the reference, and `rounds` is as in `judging.first_difference`.
    """
    found = EditComparison()
    beside = (again, *noisy)
    before, after, *others = (_calls_of_callees(calls) for calls in (reference, edited, *beside))
    for name in before:
        if name not in after:
            continue
        why = _why_left_out(before[name], after[name])
        if why is not None:
            found.left_out[name] = why
            continue
        found.calls[name] = len(before[name])
        begun = given_at_first(before[name][0]) if rounds else {}
        for index, (call, now) in enumerate(zip(before[name], after[name], strict=True)):
            runs = [calls[name][index] if index < len(calls.get(name, ())) else {} for calls in others]
            difference = _difference_of_call(call, now, runs, begun)
            if difference is not None and found.difference is None:
                found.difference = f"after call {call['number']} of {name}: {difference}"
    first, second, *rest = (_program_entries(calls) for calls in (reference, edited, *beside))
    found.program = _counts(first, second)
    if found.difference is None:
        begun = _begun_of_program(reference) if rounds else {}
        difference = _missing(first, second) or _common_difference(first, second, rest, begun)
        found.difference = None if difference is None else f"at the end of the program: {difference}"
    return found


def _calls_of_callees(calls: Sequence[Call]) -> dict[str, list[Call]]:
    """The calls of each callable by its name; of those that share their name none, since an edit may compile them in another order."""
    found: dict[str, list[Call]] = {}
    for call in calls:
        if call["number"]:
            found.setdefault(call["callee"], []).append(call)
    bare = Counter(_bare_name(callee) for callee in found)
    return {_bare_name(callee): entries for callee, entries in found.items() if bare[_bare_name(callee)] == 1}


def _bare_name(callee: str) -> str:
    """The name without the number that says which compiled callable of the program it is."""
    return callee.partition(" ")[2]


def _why_left_out(reference: Sequence[Call], edited: Sequence[Call]) -> str | None:
    """Why the calls of a callable cannot be compared: after an edit it may have another task."""
    if len(reference) != len(edited):
        return f"it is called {len(edited)} times instead of {len(reference)}"
    for call, now in zip(reference, edited, strict=True):
        given, given_now = ([entry for entry in record["before"] if entry[0] in _GIVEN] for record in (call, now))
        difference = _common_difference(given, given_now, [()])
        if difference is not None:
            return f"call {call['number']} is given other values: {difference}"
        if _form(call) != _form(now):
            return f"call {call['number']} gives {_form(now)} instead of {_form(call)}"
    return None


def _form(call: Call) -> str:
    return next((str(value) for where, name, value in call["after"] if (where, name) == ("output", "the result")), "an exception")


def _difference_of_call(call: Call, now: Call, runs: Sequence[Mapping[str, Any]], begun: Mapping[str, Any]) -> str | None:
    for when in ("after", "gradients"):
        difference = _common_difference(call[when], now[when], [run.get(when, ()) for run in runs], begun)
        if difference is not None:
            return difference
    return None


def _program_entries(calls: Sequence[Call]) -> list[Any]:
    return [entry for call in calls if call["callee"] == PROGRAM for entry in call["after"]]


def _begun_of_program(calls: Sequence[Call]) -> dict[str, Any]:
    """What the parameters of the program were when its callables were first called: those that have at its end what a callable reaches."""
    first: dict[str, dict[str, Any]] = {}
    for call in calls:
        if call["number"]:
            first.setdefault(call["callee"], given_at_first(call))
    reached = [
        (value["tensor"], first[call["callee"]][name])
        for call in calls
        if call["callee"] in first and not call["number"]
        for _, name, value in call["after"]
        if isinstance(value, dict) and name in first[call["callee"]]
    ]
    found = {}
    for where, name, value in _program_entries(calls):
        if where == "parameter" and isinstance(value, dict):
            same = (begun for tensor, begun in reached if tensor.shape == value["tensor"].shape and torch.equal(tensor, value["tensor"]))
            found[name] = next(same, None)
    return found


def _counts(reference: Sequence[Any], edited: Sequence[Any]) -> dict[str, int]:
    before, after = ({(where, name) for where, name, _ in entries} for entries in (reference, edited))
    return {**Counter(where for where, _ in before & after), "only one": len(before ^ after)}


def _missing(reference: Sequence[Any], edited: Sequence[Any]) -> str | None:
    before, after = ({(where, name) for where, name, _ in entries if where in _REQUIRED} for entries in (reference, edited))
    for names, words in ((before - after, "is gone"), (after - before, "was not there")):
        if names:
            return f"{' '.join(min(names))} {words}"
    return None


def _common_difference(
    reference: Sequence[Any], edited: Sequence[Any], beside: Sequence[Sequence[Any]], begun: Mapping[str, Any] = MappingProxyType({})
) -> str | None:
    names = {(where, name) for where, name, _ in reference} & {(where, name) for where, name, _ in edited}
    before = [entry for entry in reference if (entry[0], entry[1]) in names and entry[0] not in _NAMED_BY_TEXT]
    after = {(where, name): value for where, name, value in edited}
    both = [(where, name, _as_number(value, after[where, name]), _as_number(after[where, name], value)) for where, name, value in before]
    return difference_of_entries(
        [(where, name, value) for where, name, value, _ in both],
        [(where, name, value) for where, name, _, value in both],
        beside,
        begun=begun,
    )


def _as_number(value: Any, other: Any) -> Any:
    """A tensor of one element as its number, where the other version keeps a number there: the same value in another form."""
    if isinstance(value, dict) and isinstance(other, _PLAIN_NUMBERS) and value["tensor"].numel() == 1:
        number = value["tensor"].item()
        return float(number) if isinstance(other, float) else number
    return value
