"""A whole reduction with the isolated oracle: confirm the failure, cut, simplify; what was found, and what it cost."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from dynadiag.errors import NothingFoundError
from dynadiag.reduce.core import reduction as core
from dynadiag.reduce.core import search
from dynadiag.reduce.core.failure import SILENT, Failure, shows
from dynadiag.reduce.core.journal import Journal
from dynadiag.reduce.core.reducer import Oracle, Phase, Proposals, Reducer, Stopped
from dynadiag.reduce.core.speculation import PoolOptions
from dynadiag.reduce.core.verdict import CONFIRMATIONS, LOOKS, needs_run
from dynadiag.reduce.graphs.candidate import Candidate
from dynadiag.reduce.graphs.cutting import Cutter
from dynadiag.reduce.graphs.guilty_part import Answer, Suspected, other_cause_of, same_cause
from dynadiag.reduce.graphs.judge import IsolatedOracle, Observation, observe_isolated
from dynadiag.reduce.graphs.observing import OTHER_NUMBERS
from dynadiag.reduce.graphs.passes import ALL_PASSES, ReductionPass, passes_for
from dynadiag.reduce.graphs.passes.surroundings import fewer_calls
from dynadiag.reduce.graphs.setting import Setting
from dynadiag.torch_compat.dynamo.compiling import gpus_to_share

_CHANCES: dict[Phase, float] = {"cut": 0.5, "minimal": 0.1}
"""How often a question is answered with yes: decides which questions are worth asking ahead, and nothing else."""


class GraphOracle(Oracle[Candidate], Protocol):
    """Judges graphs, and runs them without the compiler."""

    def values(self, candidate: Candidate) -> Mapping[str, Any]:
        """The value of each node in a run without the compiler. Raises what the graph raises."""
        ...


class GraphReducer(Reducer[Candidate]):
    """The reducer of graphs: it knows the values of their nodes too."""

    _oracle: GraphOracle

    def values(self) -> Mapping[str, Any]:
        """The values of the nodes of the best candidate."""
        return self._oracle.values(replace(self.best, earlier=()))

    def earlier_values(self) -> list[Mapping[str, Any]]:
        """The same in each of its earlier calls."""
        return [self._oracle.values(replace(self.best, inputs=call.inputs, earlier=())) for call in self.best.earlier]


def reduce_fully(reducer: GraphReducer, *, simplify: bool = True, passes: Sequence[ReductionPass] = ALL_PASSES) -> bool:
    """Make the reducer's best candidate as simple as can be; False when the search was stopped before its end."""
    try:
        _run_pass(reducer, fewer_calls, ())
        _cut(reducer)
        _one_minimal(reducer)
        while simplify and _simplify(reducer, passes):
            _one_minimal(reducer)
    except Stopped:
        return False
    return True


def _cut(reducer: GraphReducer) -> None:
    cutter = Cutter(reducer.best, reducer.values(), reducer.earlier_values())
    ways = {"near": cutter.near, "between": cutter.between}
    _searched(reducer, cutter, lambda fails: search.cut(cutter.items, fails, blocks=cutter.block_of, **ways), "cut")


def _one_minimal(reducer: GraphReducer) -> None:
    cutter = Cutter(reducer.best, reducer.values(), reducer.earlier_values())
    _searched(reducer, cutter, lambda fails: search.one_minimal(cutter.items, fails), "minimal")


def _searched(reducer: GraphReducer, cutter: Cutter, procedure: Callable[[search.Fails], object], phase: Phase) -> None:
    """Run the search; what it may ask next follows from its answers so far."""
    answers: list[bool] = []

    def upcoming() -> Iterator[Candidate]:
        return map(cutter.build, search.foresee(procedure, answers, chance=_CHANCES[phase]))

    def fails(kept: frozenset[int]) -> bool:
        # A cut runs wherever the original ran: its inputs are the values that the original had there.
        candidate = cutter.build(kept)
        answers.append(candidate.key == reducer.best.key or reducer.offer(candidate, phase, checked=True, upcoming=upcoming))
        return answers[-1]

    procedure(fails)


def _simplify(reducer: GraphReducer, passes: Sequence[ReductionPass]) -> bool:
    """One round of all passes; whether anything was adopted."""
    adopted = [_run_pass(reducer, function, passes[position + 1 :]) for position, function in enumerate(passes)]
    return any(adopted)


def _run_pass(reducer: GraphReducer, reduction: ReductionPass, later: Sequence[ReductionPass]) -> bool:
    """Offer what a pass proposes, and say what may come next."""

    def offer(proposal: Candidate, proposals: Proposals[Candidate]) -> bool:
        return reducer.offer(proposal, "simplify", upcoming=lambda: _upcoming(reducer, reduction, later, proposals, proposal))

    return reducer.run_pass(reduction, offer)


def _upcoming(
    reducer: GraphReducer, reduction: ReductionPass, later: Sequence[ReductionPass], proposals: Proposals[Candidate], asked: Candidate
) -> Iterator[Candidate]:
    """What comes when the one that is asked is not adopted, and what comes when it is, by turns."""
    behind = itertools.chain.from_iterable(Proposals(function, reducer.best).coming() for function in later)
    refused = itertools.chain(proposals.coming(), behind)
    adopted = itertools.chain.from_iterable(Proposals(callback, asked).coming() for callback in (reduction, *later))
    for pair in itertools.zip_longest(refused, adopted):
        yield from (candidate for candidate in pair if candidate is not None)


LIMITS = core.LeastTimes(least_s=30.0, least_hang_s=5.0)
PASSES_ALONE = "passes-alone"
"""The slug of what is raised where the graph alone does not show the failure of the script."""


@dataclass(frozen=True, kw_only=True)
class ReductionOptions(core.Options):
    """`like` says that the failure must have the same cause as another, `printed` that the program printed its message. `width` questions
    at most are tested in parallel; what is found does not depend on it.
    """

    like: Failure | None = None
    printed: str | None = None
    simplify: bool = True
    width: int = 1


@dataclass(frozen=True, kw_only=True)
class ConfirmedGraph(core.Confirmed):
    """`wall_s` is what the first run took."""

    wall_s: float


@dataclass(frozen=True, kw_only=True)
class Reduction(core.Found[Candidate]):
    """The smallest graph. `search_wall_s` is what the search took.

    `asked` is the failure of the user's program where `confirmed.failure` is the same fault in a part of it (an ATen graph).
    `adopted` are all candidates that were the best for a while, the original first; `journal` has what was answered.
    """

    confirmed: ConfirmedGraph
    setting: Setting
    search_wall_s: float = 0.0
    asked: Failure | None = None
    adopted: tuple[Candidate, ...] = ()
    journal: Journal = field(default_factory=Journal)


def confirm(candidate: Candidate, setting: Setting, options: ReductionOptions) -> ConfirmedGraph:
    """The failure that the candidate shows, three times out of three, or flaky: then how often in ten to forty runs.

    Raises NothingFoundError (exit status 1) when nothing fails, on an environment error, or when it is not the failure asked for.
    """
    seen: list[Observation] = []
    target: Failure | None = None
    timeout_s = options.timeout_s
    looks = LOOKS if options.said is not None or options.like is not None else CONFIRMATIONS  # the script has shown it
    while needs_run([_shows(observation, target) for observation in seen], looks):
        observation = observe_isolated(candidate, setting, timeout_s=timeout_s)
        options.wait()
        seen.append(observation)
        if observation.environment:
            raise core.environment_error(observation.invalid)
        if target is None and observation.failure is not None and _is_meant(observation.failure, options):
            target = observation.failure
            took_s = observation.reached_s if target.kind == "hang" else observation.wall_s
            timeout_s = LIMITS.later(target, took_s=took_s, asked_s=options.timeout_s)
    if target is None:
        raise NothingFoundError(_why_nothing(seen, setting, options), slug=PASSES_ALONE, exit_code=1)
    return ConfirmedGraph(
        failure=target,
        failed=sum(_shows(observation, target) for observation in seen),
        of=len(seen),
        wall_s=seen[0].wall_s,
        timeout_s=timeout_s,
        cpu_s=sum(item.cpu_s for item in seen),
    )


def _shows(observation: Observation, target: Failure | None) -> bool:
    return target is not None and observation.failure is not None and observation.failure.same_as(target)


def _is_meant(failure: Failure, options: ReductionOptions) -> bool:
    if options.like is not None and not same_cause(failure, options.like):
        return False
    if options.printed is not None and not shows(failure, 1, options.printed):
        return False
    return options.is_asked_for(failure)


def _why_nothing(seen: list[Observation], setting: Setting, options: ReductionOptions) -> str:
    others = [observation.failure for observation in seen if observation.failure is not None]
    if others:
        asked = (
            "not as in the script"
            if options.said is not None and others[0].said() != options.said
            else "not with the failure requested (--kind, --match)"
        )
        what = others[0].kind.replace("_", " ")
        return f"the graph fails, but {asked}: {what} {others[0].when()}: {others[0].title()}"
    invalid = next((item.invalid for item in seen if item.invalid is not None), None)
    if invalid is not None and invalid.startswith(OTHER_NUMBERS):
        return f"no failure can be established: {invalid}"
    if invalid is not None:
        return f"the captured graph does not run: {invalid}"
    lost = f" (not captured: the options {', '.join(setting.lost_options)})" if setting.lost_options else ""
    if options.kind in SILENT:
        return f"the captured graph does not show {options.kind} (0 of {len(seen)} runs){lost}"
    return f"the captured graph does not fail on its own (0 of {len(seen)} runs): the failure depends on the surrounding program{lost}"


def reduce_graph(candidate: Candidate, setting: Setting, options: ReductionOptions) -> Reduction:
    """Confirm and reduce. Raises what `confirm` raises."""
    confirmed = confirm(candidate, setting, options)
    subject = f"{candidate.key} {setting.to_json()} {confirmed.failure.signature()}"
    journal = Journal(options.journal, subject=subject, resume=options.resume)
    journal.put_original(candidate.key)
    found = _search(candidate, setting, confirmed, options, journal)
    return replace(found, queries=confirmed.queries(found.queries), cpu_s=confirmed.cpu_s + found.cpu_s)


def reduce_further(found: Reduction, start: Candidate, causes: Sequence[Answer], options: ReductionOptions) -> Reduction:
    """The reduction that goes on from `start`, one of the adopted candidates, and adopts only what answers these questions as they say."""
    confirmed = found.confirmed

    def other_cause(candidate: Candidate) -> str | None:
        return other_cause_of(causes, suspected(candidate, found.setting, confirmed, on_gpu=candidate.accelerated, stop=lambda: False))

    journal = Journal()
    journal.put_original(start.key)
    journal.take_refusals(found.journal)
    more = _search(start, found.setting, confirmed, options, journal, other_cause)
    return replace(
        more,
        original=found.original,
        asked=found.asked,
        adopted=(*found.adopted[: found.adopted.index(start)], *more.adopted),
        queries=dict(Counter(found.queries) + Counter(more.queries)),
        cpu_s=found.cpu_s + more.cpu_s,
        search_cpu_s=found.search_cpu_s + more.search_cpu_s,
        search_wall_s=found.search_wall_s + more.search_wall_s,
        complete=found.complete and more.complete,
        other_failures=dict(Counter(found.other_failures) + Counter(more.other_failures)),
        broken_passes={**found.broken_passes, **more.broken_passes},
    )


def suspected(candidate: Candidate, setting: Setting, confirmed: ConfirmedGraph, *, on_gpu: bool, stop: Callable[[], bool]) -> Suspected:
    """A graph whose failure may have another cause than that of the confirmed one."""
    return Suspected(
        candidate=candidate,
        setting=setting,
        timeout_s=confirmed.timeout_s,
        failure=confirmed.failure,
        repeats=confirmed.repeats,
        on_gpu=on_gpu,
        stop=stop,
    )


def _search(
    candidate: Candidate,
    setting: Setting,
    confirmed: ConfirmedGraph,
    options: ReductionOptions,
    journal: Journal,
    other_cause: Callable[[Candidate], str | None] = lambda candidate: None,
) -> Reduction:
    """The reduction of a confirmed graph, without what it took to confirm it."""
    oracle = IsolatedOracle(
        setting,
        confirmed.failure,
        timeout_s=confirmed.timeout_s,
        repeats=confirmed.repeats,
        pool=_pool(candidate, confirmed, options),
        other_cause=other_cause,
    )
    oracle.wait = options.wait
    reducer = GraphReducer(candidate, oracle, journal=journal, on_query=options.on_query, ahead=oracle)
    began_s, own_s = time.monotonic(), time.process_time()
    try:
        reducer.confirm()
        complete = reduce_fully(reducer, simplify=options.simplify, passes=passes_for(confirmed.failure))
    finally:
        oracle.close()
        journal.close()
    search_cpu_s = oracle.cpu_s + time.process_time() - own_s
    return Reduction(
        original=candidate,
        best=reducer.best,
        almost=reducer.almost,
        confirmed=confirmed,
        setting=setting,
        queries=dict(reducer.progress.queries),
        cpu_s=search_cpu_s,
        search_cpu_s=search_cpu_s,
        search_wall_s=time.monotonic() - began_s,
        complete=complete,
        other_failures=dict(reducer.other_failures),
        broken_passes=dict(reducer.broken_passes),
        adopted=tuple(reducer.adopted),
        journal=journal,
    )


def _pool(candidate: Candidate, confirmed: ConfirmedGraph, options: ReductionOptions) -> PoolOptions:
    """Children that fight for one memory would fail because of each other: then one at a time."""
    width = 1 if confirmed.failure.kind == "oom" else max(1, options.width)
    gpus = gpus_to_share(candidate.text) if width > 1 and candidate.accelerated else ()
    return PoolOptions(width=width, timeout_s=confirmed.timeout_s, gpus=gpus)
