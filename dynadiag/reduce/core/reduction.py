"""What a reduction is asked for and gives, whatever is reduced: the failure that was confirmed, the smallest candidate, what it cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic

from dynadiag.errors import NothingFoundError
from dynadiag.reduce.core.failure import Failure, Said
from dynadiag.reduce.core.reducer import Candidate, Progress
from dynadiag.reduce.core.verdict import repeats_for


@dataclass(frozen=True, kw_only=True)
class Options:
    """`timeout_s` is for the first run; later ones get ten times what it took. `kind` and `match` (a regular expression searched in the
    message and the traceback) say which failure is meant, `said` what the exception of the script said. `wait` is called between two
    questions: the place to show progress or to raise.
    """

    timeout_s: float = 300.0
    kind: str | None = None
    match: str | None = None
    said: Said | None = None
    journal: Path | None = None
    resume: bool = False
    on_query: Callable[[Progress], None] | None = None
    wait: Callable[[], None] = lambda: None

    def is_asked_for(self, failure: Failure) -> bool:
        """Whether a failure is of the kind that is meant, is what the script's exception said, and matches."""
        of_kind = self.kind is None or failure.kind == self.kind
        return of_kind and (self.said is None or failure.said() == self.said) and failure.matches(self.match)


@dataclass(frozen=True, kw_only=True)
class Confirmed:
    """The failure to look for; it came `failed` times in `of` runs. A candidate may take `timeout_s`."""

    failure: Failure
    failed: int
    of: int
    timeout_s: float
    cpu_s: float

    @property
    def repeats(self) -> int:
        """How often a candidate is run until it shows the failure."""
        return repeats_for(self.failed, self.of)

    def queries(self, counts: Mapping[str, int]) -> dict[str, int]:
        """All queries by phase; `counts` are those of the search."""
        return {"confirm": self.of, **{phase: counts.get(phase, 0) for phase in ("cut", "simplify", "minimal")}}


@dataclass(frozen=True, kw_only=True)
class LeastTimes:
    """Seconds that a candidate has at least: any, and one of a hang."""

    least_s: float
    least_hang_s: float

    def later(self, failure: Failure, *, took_s: float, asked_s: float) -> float:
        """Ten times what the first run took; of a hang ten times what passed before it (`took_s`), and no more than was asked for."""
        if failure.kind == "hang":
            return min(asked_s, max(self.least_hang_s, 10 * took_s))
        return max(self.least_s, 10 * took_s)


def environment_error(why: str | None) -> NothingFoundError:
    """What is raised where the machine failed, not the compiler."""
    return NothingFoundError(f"environment error, not a compiler failure: {why}", slug="environment", exit_code=1)


@dataclass(frozen=True, kw_only=True)
class Found(Generic[Candidate]):
    """The smallest candidate and how it was found. `queries` by phase; `cpu_s` of all children and of the search in this process,
    `search_cpu_s` of the search alone, from the confirmation to the smallest candidate.
    """

    original: Candidate
    best: Candidate
    almost: Candidate | None
    confirmed: Confirmed
    queries: Mapping[str, int]
    cpu_s: float
    search_cpu_s: float
    complete: bool
    other_failures: Mapping[str, int] = field(default_factory=dict)
    broken_passes: Mapping[str, str] = field(default_factory=dict)
