"""How far a code object is from the recompile limit, and whether it was reached."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from dynadiag.facts.lookups import is_from_text, process_of
from dynadiag.facts.user_frames import of_last_run
from dynadiag.model.run import CompileMetrics, Frame, Run
from dynadiag.passes.transitions import CodeObject

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
    reached = [found for frame in code.frames if (found := _refused(frame.metrics) or _printed(frame, run)) is not None]
    refused = _refused_frames(run)
    hit = tuple(frame.id for frame in code.frames if frame.id in refused or _refused(frame.metrics) is not None)
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
def _refused_frames(run: Run) -> frozenset[str | None]:
    return frozenset(problem.frame for problem in run.problems if problem.kind == "recompile_limit")


@of_last_run
def _with_metrics(run: Run) -> frozenset[int]:
    """The processes whose log has metrics."""
    return frozenset(frame.key.process for frame in run.frames if frame.metrics is not None)


def _recorded(code: CodeObject) -> int | None:
    """The recompile limit as torch's metrics of these compilations say it."""
    limits = (frame.metrics.recompile_limit for frame in code.frames if frame.metrics is not None)
    return next((limit for limit in limits if limit is not None), None)


def _refused(metrics: CompileMetrics | None) -> tuple[str, int | None] | None:
    """Option and value of the limit that refused a compilation (`Dynamo recompile limit exceeded`, `_dynamo/convert_frame.py`)."""
    if metrics is None or not ("recompile limit exceeded" in (metrics.fail_reason or "") or metrics.fail_type == "FailOnRecompileLimitHit"):
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
