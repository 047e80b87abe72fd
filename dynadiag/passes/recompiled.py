"""Code objects that were compiled again, and which of them only followed another one that calls them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dynadiag.changes.recompile_cause import Split
from dynadiag.facts.lookups import is_from_text, is_refused, process_of, refused_frames
from dynadiag.facts.user_frames import callers, of_last_run, source_function
from dynadiag.model.clauses import VersionsUsed
from dynadiag.model.location import Location
from dynadiag.model.report import Advice
from dynadiag.model.run import CompileMetrics, Frame, Run
from dynadiag.passes.transitions import ChangedSource, CodeObject, KnownValues

# How far a code object is from the recompile limit, and whether it was reached.
# torch's defaults in 2.11 and 2.15 (`torch/_dynamo/config.py`).
_DEFAULT_LIMIT = 8
_DEFAULT_ACCUMULATED_LIMIT = 256
_PRINTED = re.compile(r"torch\._?dynamo hit (?:config\.|recompilation )?(?P<name>\w+)(?: \((?P<value>\d{1,9})\))?")
_LIMIT_REACHED = re.compile(r"exceeding the (?P<name>\w+) cache size limit \(currently set to (?P<value>\d{1,9})\)")


@dataclass(frozen=True, slots=True)
class Limit:
    """How many versions of a code object torch keeps before it gives up, and whether that happened.

    `value` is None when the log does not say; `name` the option; `entries` the compiled versions in the cache after the last recompile that
    finished; `unfinished` the compilations that the log shows only the beginning of.
    """

    name: str
    value: int | None
    entries: int
    hit: tuple[str, ...]
    unfinished: int = 0


def recompile_limit(code: CodeObject, run: Run) -> Limit:
    """How far a code object is from the recompile limit, and which attempts were refused because of it."""
    reached = [found for frame in code.frames if (found := _reached(frame.metrics) or _printed(frame, run)) is not None]
    refused = refused_frames(run)
    hit = tuple(frame.id for frame in code.frames if frame.id in refused)
    named = next((found for found in reached if found[1] is not None), None)
    name = named[0] if named else "recompile_limit"
    value = named[1] if named and named[1] is not None else _recorded(code) or _configured(run, code.key[0], name)
    entries = max(_entries(code, hit), _entries_printed(code, name, value, run))
    return Limit(name, value, entries, hit, _unfinished(code, run))


def _printed(frame: Frame, run: Run) -> tuple[str, int | None] | None:
    """Option and value in the warning that torch prints by default, where that is all that is known."""
    found = _PRINTED.match(_limits_printed(run).get(frame.id, ""))
    if found is None:
        return None
    return found["name"].replace("cache_size_limit", "recompile_limit"), int(found["value"]) if found["value"] else None


def _entries_printed(code: CodeObject, name: str, value: int | None, run: Run) -> int:
    """How many versions a text shows: at the limit as many as it allows, else as the compile ids count; each recompile adds one."""
    if not is_from_text(run):
        return 0
    refused = [frame for frame in code.frames if frame.id in _limits_printed(run)]
    if not refused:
        made = [frame.key.compile for frame in code.frames if frame.outcome != "failed" and frame.key.compile is not None]
        return max(made) + 1 if made else 1 + sum(step.frame.outcome != "failed" for step in code.steps)
    return value if name == "recompile_limit" and value is not None else max(frame.key.compile or 0 for frame in refused)


@of_last_run
def _limits_printed(run: Run) -> Mapping[str | None, str]:
    """By frame the warning of a limit, in a text."""
    return {problem.frame: problem.text for problem in run.problems if problem.kind == "recompile_limit"} if is_from_text(run) else {}


def _unfinished(code: CodeObject, run: Run) -> int:
    """Compilations without metrics in a log that has them for others: the process ended, or still compiles."""
    begun = [frame for frame in code.frames if frame.metrics is None and frame.file is not None]
    process = code.key[0]
    return len(begun) if process in _with_metrics(run) else 0


@of_last_run
def _with_metrics(run: Run) -> frozenset[int]:
    """The processes whose log has metrics."""
    return frozenset(frame.key.process for frame in run.frames if frame.metrics is not None)


def _recorded(code: CodeObject) -> int | None:
    """The recompile limit as torch's metrics of these compilations say it."""
    limits = (frame.metrics.recompile_limit for frame in code.frames if frame.metrics is not None)
    return next((limit for limit in limits if limit is not None), None)


def _reached(metrics: CompileMetrics | None) -> tuple[str, int | None] | None:
    """Option and value of the limit that refused a compilation (`Dynamo recompile limit exceeded`, `_dynamo/convert_frame.py`)."""
    if metrics is None or not is_refused(metrics):
        return None
    match = _LIMIT_REACHED.search(metrics.fail_reason or "")
    return (match["name"], int(match["value"])) if match else ("recompile_limit", None)


def _configured(run: Run, process: int, name: str) -> int | None:
    """The option's value: as set, torch's default if the recorder saw the configuration without it, None if nobody recorded it."""
    found = process_of(run, process)
    if found is None:
        return None
    area = found.config.get("dynamo")
    alias = name.replace("recompile_limit", "cache_size_limit")
    if area is None:
        return None
    value = area.get(name, area.get(alias, _DEFAULT_LIMIT if name == "recompile_limit" else _DEFAULT_ACCUMULATED_LIMIT))
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _entries(code: CodeObject, refused: tuple[str, ...]) -> int:
    """Compiled versions after the last recompile: torch's own count when it was recorded, else the compilations that succeeded."""
    sizes = [
        frame.metrics.cache_size + (frame.outcome in ("compiled", "broke"))
        for frame in code.frames
        if frame.metrics is not None and frame.metrics.cache_size is not None
    ]
    return max(sizes, default=sum(frame.outcome in ("compiled", "broke") and frame.id not in refused for frame in code.frames))


@dataclass(frozen=True, slots=True)
class Recompiled:
    """One code object with everything that was made of it: table, advice and reasons for its rows, and the line that called it.

    `split` is the break that gives it versions of its own. `stays`: how many of its recompiles come whatever size is dynamic from the
    first call on; `sides`: how many versions come for the integers of modules once they are symbols.
    """

    code: CodeObject
    known: KnownValues
    rows: tuple[ChangedSource, ...]
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


def _same_values(row: ChangedSource, there: ChangedSource) -> bool:
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
