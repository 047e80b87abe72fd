"""What the gate lets through (`GateOptions`), and what it found: `Problem`, `Limit` and `GateResult`, as all its formats show them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from dynadiag.errors import UsageError
from dynadiag.facts.wording import plural
from dynadiag.model.location import Location
from dynadiag.model.report import Severity
from dynadiag.record.project import refuse_unknown, settings_of

Status = Literal["failed", "known", "allowed", "passed"]


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One thing that is told: `failed`, or let through because the baseline knows it, a comment allows it (`reason`) or no limit is passed.

    `code` is that of the finding, or the name of a limit. `fingerprint` is None for what is no finding.
    """

    code: str
    severity: Severity
    status: Status
    title: str
    where: Location | None
    fingerprint: str | None = None
    why: str = ""
    fix: str | None = None
    reason: str | None = None
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Limit:
    """One limit: how many were counted, how many of them (`excused`) the baseline or a comment lets through, and what is wanted.

    `many` is the plural of `what` where that is not made with an s.
    """

    name: str
    what: str
    counted: int
    excused: Annotated[int, "how many of them the baseline or a comment lets through"]
    limit: int
    holds: bool
    many: Annotated[str | None, "the plural of `what` where that is not made with an s"] = None


def counted(limit: Limit) -> str:
    """`2 graph break sites`: what counts against a limit."""
    return plural(limit.counted - limit.excused, limit.what, limit.many)


@dataclass(frozen=True, kw_only=True)
class GateResult:
    """The outcome. `problems` are in the order of the report, failed or not; `notes` are sentences on the comments and the baseline."""

    program: str
    torch: str | None
    problems: tuple[Problem, ...]
    limits: tuple[Limit, ...]
    remarks: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()
    gone: int = 0

    @property
    def failed(self) -> tuple[Problem, ...]:
        """What does not pass."""
        return tuple(problem for problem in self.problems if problem.status == "failed")

    @property
    def exit_status(self) -> int:
        """0 when everything passes, else 1."""
        return 1 if self.failed else 0


# What the gate lets through: limits from the command line and from `[tool.dynadiag.check]`.

BASELINE = "dynadiag-baseline.json"
"""The name of a baseline that `--update-baseline` writes when no other is given."""
FAIL_ON = ("error", "warning")
_COUNTS = ("max-breaks", "max-recompiles", "max-fallbacks", "max-cache-misses", "max-compiles-after", "min-graphs")
_SETTINGS = (*_COUNTS, "min-compiled", "no-mutation-copy", "fail-on", "baseline")
_TABLE = "[tool.dynadiag.check]"


@dataclass(frozen=True, kw_only=True)
class GateOptions:
    """The limits; None is no limit. `min_compiled` is a share of operators, from 0 to 1, `max_compiles_after` a number of calls after which
    nothing may compile.

    `fail_on` is the lowest severity that fails where no limit says otherwise.
    """

    max_breaks: int | None = None
    max_recompiles: int | None = None
    max_fallbacks: int | None = None
    max_cache_misses: int | None = None
    max_compiles_after: int | None = None
    min_graphs: int | None = None
    min_compiled: float | None = None
    no_mutation_copy: bool = False
    fail_on: str = "warning"
    baseline: Path | None = None

    def changed(self, **given: Any) -> GateOptions:
        """These options with those that are not None in place of their own."""
        return replace(self, **{name: value for name, value in given.items() if value is not None})


def configured(start: Path) -> GateOptions:
    """The settings of the nearest `pyproject.toml` above a folder that has our table. Raises UsageError for one that cannot be meant."""
    found = settings_of(start)
    if found is None or "check" not in found[0]:
        return GateOptions()
    table, folder = found[0]["check"], found[1]
    where = f"{folder / 'pyproject.toml'}: {_TABLE}"
    if not isinstance(table, dict):
        raise UsageError(f"{where} must be a table")
    refuse_unknown(table, _SETTINGS, where)
    for name in _COUNTS:
        if name in table and (type(table[name]) is not int or table[name] < 0):
            raise UsageError(f"{where}: {name} must be a whole number, not {table[name]!r:.40}")
    share = table.get("min-compiled", 0)
    if type(share) not in (int, float) or not 0 <= share <= 1:
        raise UsageError(f"{where}: min-compiled must be a number from 0 to 1, not {share!r:.40}")
    if type(table.get("no-mutation-copy", False)) is not bool:
        raise UsageError(f"{where}: no-mutation-copy must be true or false")
    if table.get("fail-on", "warning") not in FAIL_ON:
        raise UsageError(f"{where}: fail-on must be one of: {', '.join(FAIL_ON)}")
    baseline = table.get("baseline")
    if baseline is not None and (not isinstance(baseline, str) or not baseline.strip()):
        raise UsageError(f"{where}: baseline must be the name of a file")
    given = {name.replace("-", "_"): value for name, value in table.items() if name != "baseline"}
    return GateOptions().changed(**given, baseline=None if baseline is None else folder / baseline)
