"""What the gate found: `Problem`, `Limit` and `GateResult`, as all its formats show them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from dynadiag.facts.wording import plural
from dynadiag.model.location import Location
from dynadiag.model.report import Severity

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
