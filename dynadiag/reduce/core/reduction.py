"""What a reduction gives, whatever was reduced: the failure that was confirmed, the smallest candidate, and what it cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic

from dynadiag.reduce.core.failure import Failure
from dynadiag.reduce.core.flakiness import repeats_for
from dynadiag.reduce.core.reducer import Candidate


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
