"""The reducer: asks the oracle about candidates, never twice about the same one, and keeps the best. The only place that adopts.

What a candidate is (a graph with inputs, a script) it does not know.
"""

from __future__ import annotations

import itertools
import traceback
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, Protocol, TypeVar

from dynadiag.reduce.core.journal import Journal
from dynadiag.reduce.core.verdict import Verdict

Phase = Literal["confirm", "cut", "simplify", "minimal"]
Judgement = tuple[Verdict, str]
_FRUITLESS_LIMIT = 400  # proposals of one pass that are refused in a row
_LOOKED_AT = 4  # proposals that are looked at for each that may be judged ahead


class Stopped(Exception):  # noqa: N818 - no error: the search is asked to end and gives its best
    """The search is to end now, with the best candidate so far."""


class Reducible(Protocol):
    """What the search asks of a candidate."""

    @property
    def key(self) -> str:
        """Names it: the same for the same candidate."""
        ...

    @property
    def measure(self) -> tuple[Any, ...]:
        """How simple it is: a total order, the simplest first."""
        ...

    @property
    def nodes(self) -> int:
        """How large it is, for a display."""
        ...


Candidate = TypeVar("Candidate", bound=Reducible)
Asked = TypeVar("Asked", bound=Reducible, contravariant=True)
Upcoming = Callable[[], Iterable[Candidate]]
Pass = Callable[[Candidate], Iterator[Candidate]]


class Oracle(Protocol[Asked]):
    """Judges candidates."""

    def judge(self, candidate: Asked) -> Judgement:
        """The verdict, and what is to be remembered with it (the text of another failure)."""
        ...

    def impossible(self, candidate: Asked) -> str | None:
        """Why the candidate cannot run, found without data; None when it may run."""
        ...


class Ahead(Protocol[Asked]):
    """An oracle that judges likely questions beside the one that is asked."""

    ahead: int
    """How many further questions it wants to hear of."""

    def costs_a_child(self, candidate: Asked) -> bool:
        """Whether `impossible` needs a child of its own to say it: more expensive than to let the child of the question find out."""
        ...

    def begin(self, candidate: Asked) -> None:
        """The question that comes next: it may be judged from now on, where there is room."""
        ...

    def prepare(self, candidates: Sequence[Asked]) -> None:
        """The question that comes next, and behind it `ahead` likely ones at most: they may be judged at the same time."""
        ...


@dataclass(kw_only=True)
class Progress:
    """What a display may want to know: queries by phase, and the best candidate so far."""

    queries: Counter[str] = field(default_factory=Counter)
    best: Reducible | None = None
    phase: str = "confirm"


class Proposals(Generic[Candidate]):
    """What a pass proposes for a candidate, which may be looked at before its turn; one that breaks proposes nothing more: `broken` is its
    traceback.
    """

    def __init__(self, reduction: Pass[Candidate], candidate: Candidate) -> None:
        self.broken: str | None = None
        self._left = _proposed(reduction, candidate)
        self._seen: deque[Candidate] = deque()
        self._error: str | None = None

    def __iter__(self) -> Iterator[Candidate]:
        while self._seen or self._look():
            yield self._seen.popleft()
        self.broken = self._error

    def coming(self) -> Iterator[Candidate]:
        """The next ones, which stay next."""
        for position in itertools.count():
            if position >= len(self._seen) and not self._look():
                return
            yield self._seen[position]

    def _look(self) -> bool:
        try:
            self._seen.append(next(self._left))
        except StopIteration:
            return False
        except Exception:  # noqa: BLE001 - the border around one pass
            self._error, self._left = traceback.format_exc(), iter(())
            return False
        return True


def _proposed(reduction: Pass[Candidate], candidate: Candidate) -> Iterator[Candidate]:
    yield from reduction(candidate)


class Reducer(Generic[Candidate]):
    """Holds the best candidate; `offer` is the one function that replaces it."""

    def __init__(
        self,
        original: Candidate,
        oracle: Oracle[Candidate],
        *,
        journal: Journal | None = None,
        on_query: Callable[[Progress], None] | None = None,
        query_limit: int | None = None,
        ahead: Ahead[Candidate] | None = None,
    ) -> None:
        self.best = original
        self.adopted = [original]
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

    def offer(self, candidate: Candidate, phase: Phase, *, checked: bool = False, upcoming: Upcoming[Candidate] = lambda: ()) -> bool:
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
            self.adopted.append(candidate)
            self.almost = None
            return True
        if verdict is Verdict.BORING and (self.almost is None or candidate.measure > self.almost.measure):
            self.almost = candidate
        return False

    def run_pass(
        self, reduction: Pass[Candidate], offer: Callable[[Candidate, Proposals[Candidate]], bool], *, goes_on: bool = False
    ) -> bool:
        """Offer what a pass proposes; after each adoption it proposes anew, from the new best. Gives whether anything was adopted.

        With `goes_on` it goes on at the same place then: what came before was refused for a candidate that hardly differs.
        """
        adopted, refused, again = False, 0, True
        while again:
            again = False
            proposals = Proposals(reduction, self.best)
            for proposal in itertools.islice(proposals, refused, refused + _FRUITLESS_LIMIT):
                if offer(proposal, proposals):
                    adopted = again = True
                    break
                refused += goes_on
            if proposals.broken is not None:
                self.broken_passes[getattr(reduction, "__name__", repr(reduction))] = proposals.broken
        return adopted

    def _is_worth_a_query(self, candidate: Candidate, *, checked: bool) -> bool:
        if candidate.measure >= self.best.measure:
            return False
        if checked or not self._fake_rules:
            return True
        if candidate.key not in self._possible:
            self._possible[candidate.key] = self._oracle.impossible(candidate) is None
        return self._possible[candidate.key]

    def _prepare(self, ahead: Ahead[Candidate], candidate: Candidate, upcoming: Upcoming[Candidate], *, checked: bool) -> None:
        ahead.begin(candidate)
        likely = itertools.islice(upcoming(), _LOOKED_AT * ahead.ahead)
        unknown = (
            item
            for item in likely
            if self._journal.get(item.key) is None and self._is_worth_a_query(item, checked=checked or ahead.costs_a_child(item))
        )
        ahead.prepare([candidate, *itertools.islice(unknown, ahead.ahead)])
