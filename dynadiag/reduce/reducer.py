"""The reducer: asks the oracle about candidates, never twice about the same graph, and keeps the best. The only place that adopts."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

from dynadiag.reduce.candidate import Candidate
from dynadiag.reduce.inputs import Input, TensorInput
from dynadiag.reduce.journal import Journal
from dynadiag.reduce.verdict import Verdict
from dynadiag.torch_compat.reduce_fake import why_it_cannot_run

Phase = Literal["confirm", "cut", "simplify", "minimal"]
Judgement = tuple[Verdict, str]
Upcoming = Callable[[], "Iterable[Candidate]"]
_LOOKED_AT = 4  # proposals that are looked at for each that may be judged ahead


class Stopped(Exception):  # noqa: N818 - no error: the search is asked to end and gives its best
    """The search is to end now, with the best candidate so far."""


class Oracle(Protocol):
    """Judges candidates, and runs them without the compiler."""

    def judge(self, candidate: Candidate) -> Judgement:
        """The verdict, and what is to be remembered with it (the text of another failure)."""
        ...

    def values(self, candidate: Candidate) -> Mapping[str, Any]:
        """The value of each node in a run without the compiler. Raises what the graph raises."""
        ...

    def impossible(self, candidate: Candidate) -> str | None:
        """Why the candidate cannot run, found without data (`impossible` below); None when it may run."""
        ...


class Ahead(Protocol):
    """An oracle that judges likely questions beside the one that is asked."""

    ahead: int
    """How many further questions it wants to hear of."""

    def begin(self, candidate: Candidate) -> None:
        """The question that comes next: it may be judged from now on, where there is room."""
        ...

    def prepare(self, candidates: Sequence[Candidate]) -> None:
        """The question that comes next, and behind it `ahead` likely ones at most: they may be judged at the same time."""
        ...


@dataclass(kw_only=True)
class Progress:
    """What a display may want to know: queries by phase, and the best candidate so far."""

    queries: Counter[str] = field(default_factory=Counter)
    best: Candidate | None = None
    phase: str = "confirm"


class Reducer:
    """Holds the best candidate; `offer` is the one function that replaces it."""

    def __init__(
        self,
        original: Candidate,
        oracle: Oracle,
        *,
        journal: Journal | None = None,
        on_query: Callable[[Progress], None] | None = None,
        query_limit: int | None = None,
        ahead: Ahead | None = None,
    ) -> None:
        self.best = original
        self.progress = Progress(best=original)
        self.other_failures: Counter[str] = Counter()
        self.broken_passes: dict[str, str] = {}
        self.almost: Candidate | None = None
        self._oracle = oracle
        self._journal = journal or Journal()
        self._on_query = on_query
        self._query_limit = query_limit
        self._ahead = ahead if ahead is not None and ahead.ahead > 0 else None
        self._fake_rules = True
        self._possible: dict[str, bool] = {}

    def confirm(self) -> Verdict:
        """The verdict on the original. Fake tensors filter candidates only when the original passes them itself."""
        verdict = self.ask(self.best, "confirm")
        self._fake_rules = self._oracle.impossible(self.best) is None
        return verdict

    def ask(self, candidate: Candidate, phase: Phase) -> Verdict:
        """The verdict, from memory where the same graph was judged before. Raises Stopped when the search is to end."""
        known = self._journal.get(candidate.key)
        if known is None:
            if self._query_limit is not None and self.progress.queries.total() >= self._query_limit:
                raise Stopped
            self.progress.queries[phase] += 1
            self.progress.phase = phase
            verdict, remark = self._oracle.judge(candidate)
            self._journal.put(candidate.key, verdict, remark)
            if self._on_query is not None:
                self._on_query(self.progress)
        else:
            verdict, remark = known
        if verdict is Verdict.DIFFERENT:
            self.other_failures[remark] += known is None or not self.other_failures[remark]
        return verdict

    def offer(self, candidate: Candidate, phase: Phase, *, checked: bool = False, upcoming: Upcoming = lambda: ()) -> bool:
        """Adopt the candidate if it is simpler than the best and fails in the same way.

        Unless `checked`, a candidate that cannot run on fake tensors is refused without a query. `upcoming` are those that are likely to
        be offered next; they decide nothing.
        """
        if not self._is_worth_a_query(candidate, checked=checked):
            return False
        if self._ahead is not None and self._journal.get(candidate.key) is None:
            self._prepare(self._ahead, candidate, upcoming, checked=checked)
        verdict = self.ask(candidate, phase)
        if verdict is Verdict.INTERESTING:
            self.best = self.progress.best = candidate
            self.almost = None
            return True
        if verdict is Verdict.BORING and (self.almost is None or candidate.measure > self.almost.measure):
            self.almost = candidate
        return False

    def _is_worth_a_query(self, candidate: Candidate, *, checked: bool) -> bool:
        if candidate.measure >= self.best.measure:
            return False
        if checked or not self._fake_rules:
            return True
        if candidate.key not in self._possible:
            self._possible[candidate.key] = self._oracle.impossible(candidate) is None
        return self._possible[candidate.key]

    def _prepare(self, ahead: Ahead, candidate: Candidate, upcoming: Upcoming, *, checked: bool) -> None:
        ahead.begin(candidate)
        likely = itertools.islice(upcoming(), _LOOKED_AT * ahead.ahead)
        # Fake tensors on a GPU need a child of their own: dearer than to let the child of the question find out.
        unknown = (
            one for one in likely if self._journal.get(one.key) is None and self._is_worth_a_query(one, checked=checked or one.accelerated)
        )
        ahead.prepare([candidate, *itertools.islice(unknown, ahead.ahead)])

    def values(self) -> Mapping[str, Any]:
        """The values of the nodes of the best candidate."""
        return self._oracle.values(replace(self.best, earlier=()))

    def earlier_values(self) -> list[Mapping[str, Any]]:
        """The same in each of its earlier calls."""
        return [self._oracle.values(replace(self.best, inputs=call.inputs, earlier=())) for call in self.best.earlier]


def impossible(candidate: Candidate) -> str | None:
    """Why the candidate cannot run on tensors without data. Fake tensors of a GPU may initialise it: not for who forks later."""
    reasons = (why_it_cannot_run(candidate.module, [_layout(one) for one in call.inputs]) for call in candidate.calls)
    return next(filter(None, reasons), None)


def _layout(one: Input) -> Any:
    return (one.shape, one.stride, one.dtype, one.device, one.requires_grad) if isinstance(one, TensorInput) else one.value
