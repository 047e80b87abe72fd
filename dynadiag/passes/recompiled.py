"""Code objects that were compiled again, and which of them only followed another one that calls them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dynadiag.changes.recompile_cause import Split
from dynadiag.facts.user_frames import callers, source_function
from dynadiag.model.clauses import VersionsUsed
from dynadiag.model.location import Location
from dynadiag.model.report import Advice
from dynadiag.model.run import Frame
from dynadiag.passes.recompile_limit import Limit
from dynadiag.passes.transitions import CodeObject, Known, Row


@dataclass(frozen=True, slots=True)
class Recompiled:
    """One code object with everything that was made of it: table, advice and reasons for its rows, and the line that called it.

    `split` is the break that gives it versions of its own. `stays`: how many of its recompiles come whatever size is dynamic from the
    first call on; `sides`: how many versions come for the integers of modules once they are symbols.
    """

    code: CodeObject
    known: Known
    rows: tuple[Row, ...]
    advice: tuple[tuple[Advice, ...], ...]
    reasons: tuple[str | None, ...]
    split: Split | None
    limit: Limit
    call: Location | None
    stays: int
    sides: int


Group = Sequence[Recompiled]
Function = tuple[str | None, str | None]
"""The file and the name of a function."""


def followers(groups: Sequence[Group]) -> Mapping[int, int]:
    """For the index of each group that only followed another one, the index of the outermost one that it followed.

    A group follows another if all of its recompiles happened in calls made by the other's code, and everything that changed in it went
    through the same values there: `forward` with `input_ids.size(1)`: 8 -> 12, called by `wrapper` with `args[0].size(1)`: 8 -> 12. That
    one argument was passed on is derived from this, not recorded. A group also follows one that hit the recompile limit, if its code was
    only compiled in calls from there and since then. Other groups at the limit stand alone.
    """
    found: dict[int, int] = {}
    groups_of_function: dict[Function, list[int]] = {}
    for index, group in enumerate(groups):
        for function in _functions(group):
            groups_of_function.setdefault(function, []).append(index)
    for inner, group in enumerate(groups):
        calling = {function for recompiled in group for frame in _first_frames(recompiled.code) for function in _callers(frame)}
        candidates = {index for function in calling for index in groups_of_function.get(function, ())}
        for outer in sorted(candidates):
            if outer != inner and outer not in found and _follows(group, groups[outer]):
                found[inner] = outer
                break
    return {inner: _outermost(outer, found) for inner, outer in found.items()}


def _outermost(index: int, found: Mapping[int, int]) -> int:
    while index in found:
        index = found[index]
    return index


def _follows(group: Group, other: Group) -> bool:
    if any(recompiled.limit.hit for recompiled in other) and not any(item.limit.hit for item in group):
        return all(_after_limit(frame, other) for element in group for frame in element.code.frames)
    if any(entry.limit.hit for entry in (*group, *other)) or not _processes(group) <= _processes(other):
        return False
    return all(_called_by(step.frame, other) for one in group for step in one.code.steps) and _same_changes(group, other)


def _after_limit(frame: Frame, other: Group) -> bool:
    """Whether the frame is compiled in a call by code that runs eager since it hit the limit; before, it was part of that code's graph."""
    refused = [item.record for code in other for item in code.code.frames if item.id in code.limit.hit and item.record is not None]
    return _called_by(frame, other) and (not refused or frame.record is None or frame.record > min(refused))


def _processes(group: Group) -> set[int]:
    return {recompiled.code.key[0] for recompiled in group}


def _called_by(frame: Frame, other: Group) -> bool:
    """Whether code of the other group is among the callers of the frame: by file and function, since a caller has the line of its call."""
    codes = _functions(other)
    return (frame.file, source_function(frame.name)) not in codes and not codes.isdisjoint(_callers(frame))


def _first_frames(code: CodeObject) -> list[Frame]:
    """The first compilation and the first recompile; what a group follows has called one of them at least."""
    return [*code.frames[:1], *(step.frame for step in code.steps[:1])]


def _functions(group: Group) -> set[Function]:
    return {(recompiled.code.named.file, source_function(recompiled.code.named.name)) for recompiled in group}


def _callers(frame: Frame) -> set[Function]:
    return {(caller.file, _bare(caller.function)) for caller in callers(frame)}


def _bare(function: str | None) -> str | None:
    """`forward` for `Model.forward`, the name that a frame has."""
    return source_function(None if function is None else function.rpartition(".")[2])


def _same_changes(group: Group, other: Group) -> bool:
    rows = [row for recompiled in group for row in recompiled.rows if row.steps]
    outer = [row for item in other for row in item.rows if row.steps]
    return bool(rows) and all(any(_same_values(row, there) for there in outer) for row in rows)


def _same_values(row: Row, there: Row) -> bool:
    """Whether a row tells the same change; the first value may be missing where torch named another guard."""
    if row.kind != there.kind or not row.values or row.kind not in ("size", "value") or len(row.steps) > len(there.steps):
        return False
    known = row.values == there.values or (row.first_unknown and row.values == there.values[-len(row.values) :])
    return known and not row.last_unknown and not there.last_unknown and (len(there.values) > 1 or there.first_unknown)


def versions_used(group: Group) -> VersionsUsed:
    """How far the code object with most versions is from the recompile limit."""
    one = max(group, key=lambda each: (bool(each.limit.hit), each.limit.entries))
    limit = one.limit
    return VersionsUsed(
        versions=limit.entries,
        limit=limit.value,
        refused=len(limit.hit),
        raised=any(frame.outcome == "failed" for frame in one.code.frames if frame.id in limit.hit),
        unfinished=limit.unfinished,
    )
