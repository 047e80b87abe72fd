"""What graph breaks cost in milliseconds per call, by ablation: the call's own graphs, joined where a break was, timed beside the call.

These take turns in random order: the call as it is; all its graphs joined to one; and its graphs joined but for the first places that
break, and but for the last ones, with the host's pauses that the real call makes there. The price of a place is what the call gains when
it goes, the mean of two orders: places fixed from the last to the first, and from the first to the last. A price then holds its half of
what two breaks cost only together (a device that waits for the host), and prices add up to the call with all places less that with none.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from dynadiag.bench.inside.joining import CannotJoinError, JoinedPart, Replay, join, walk_like
from dynadiag.bench.inside.loading import CompileSwitch
from dynadiag.bench.inside.probing import regions_entered
from dynadiag.bench.inside.results import tensors_in
from dynadiag.bench.inside.steps import CallUnit, TimedStep
from dynadiag.bench.inside.timing import Timer
from dynadiag.capture.reach import find_state, take_snapshot
from dynadiag.capture.script import one_line
from dynadiag.torch_compat.dynamo.break_costs import (
    Entered,
    GuardTimes,
    Watch,
    compiled_names,
    static_shapes,
    timed_guards,
    watched_backend,
)

MOST_PLACES = 8
_MADE_BETWEEN = "eager code there makes a tensor for a later graph: what a fix would still have to compute is not known"
# Calls that pauses are taken from: so many, and more as long as they take so many seconds together.
_PAUSE_CALLS, _MOST_PAUSE_CALLS, _PAUSE_S = 15, 100, 0.2
_WARM_CALLS = 3
_MIN_ROUNDS, _MAX_ROUNDS = 20, 60


@dataclass(kw_only=True)
class BreakPlace:
    """A place where graphs end: the boundaries (after which call of the tape), why, and whether a break is what ends them."""

    where: str
    reason: str
    is_break: bool
    boundaries: list[int] = field(default_factory=list)
    why_not: str = ""
    pause_s: float = 0.0


def prices_of(step: TimedStep, switch: CompileSwitch, *, cuda: bool, max_s: float) -> dict[str, Any]:
    """Samples of the call, of its joined graphs and of each place; guard sets and copies. `why_not` says why there are none."""
    if not isinstance(step, CallUnit) or step.own_backward or (step.compiled_by == "program" and not step.taken):
        return {"why_not": "only a call whose backward we run can be taken apart, not a whole step"}
    import torch

    snapshot = take_snapshot(find_state(step.original, step.arguments, step.keywords))
    try:
        torch.compiler.reset()
        with torch.compiler.set_stance("default"):
            return _Pricing(step, switch, cuda=cuda).measure(max_s)
    except CannotJoinError as error:
        return {"why_not": str(error)}
    finally:
        torch.compiler.reset()
        snapshot.restore()


class _Pricing:
    """One call, its tape, and the joined graphs made from it."""

    def __init__(self, unit: CallUnit, switch: CompileSwitch, *, cuda: bool) -> None:
        self._unit = unit
        self._switch = switch
        self._options = switch.merged(unit.options)
        self._cuda = cuda
        self._watch = Watch()
        self._joined = Watch()
        self._parts: dict[tuple[int, int], JoinedPart] = {}
        self._function = self._compiled(unit.original, self._watch)
        self._functions: dict[int, Callable[..., Any]] = {}
        self._walk: Any = None
        self._guards = GuardTimes()
        self._tape: list[Entered] = []
        self._output: Any = None
        self._outputs: dict[str, Any] = {}

    def measure(self, max_s: float) -> dict[str, Any]:
        """Everything; raises CannotJoinError where graphs cannot be joined."""
        with timed_guards(self._guards):
            # The first call: with CUDA graphs it runs without one. What a tape keeps alive in a call that replays a graph, torch refuses,
            # since it died while the graph was recorded (`check_invariants` in torch/_inductor/cudagraph_trees.py, 2.11 to 2.15).
            self._record()
            for _ in range(_WARM_CALLS):
                self._step()
        guards = self._guard_sets()
        copies = [self._copy(call, at, name) for call in self._tape for at, name in call.piece.copied_back]
        places = self._places()
        facts = {"guards": guards, "copy_backs": copies, "graph_calls": len(self._tape), "total_why_not": self._computed_outside(places)}
        if not places:
            return {**facts, "places": [], "why_not": ""}
        pauses = self._pauses()
        for place in places:
            place.pause_s = sum(pauses[at] for at in place.boundaries)
        variants: dict[str, Callable[[], Any]] = {"step": self._step}
        variants["unbroken"] = self._unbroken()
        cuts = _cuts([number for number, place in enumerate(places) if not place.why_not])
        variants |= {_name(cut): self._cut([places[number] for number in cut]) for cut in cuts}
        samples = _take_turns(variants, cuda=self._cuda, max_s=max_s)
        listed = [
            {
                "where": place.where,
                "reason": place.reason,
                "is_break": place.is_break,
                "times": len(place.boundaries),
                "why_not": place.why_not,
                "pause_ms": place.pause_s * 1e3,
                "price_samples_ms": [] if place.why_not else _prices(number, cuts, samples),
            }
            for number, place in enumerate(places)
        ]
        return {**facts, "places": listed, "step_ms": samples["step"], "unbroken_ms": samples["unbroken"], "why_not": ""}

    def _compiled(self, function: Any, watch: Watch, **more: Any) -> Any:
        kept = {name: value for name, value in self._options.items() if name in ("dynamic", "fullgraph")}
        return self._switch.original(function, backend=watched_backend(self._options, watch), **{**kept, **more})

    def _record(self) -> None:
        self._watch.tape = self._tape
        output = self._step()
        self._watch.tape = None
        self._output, self._outputs = output, tensors_in("output", output)
        if not self._tape:
            raise CannotJoinError("no compiled graph was called")
        given = {id(value) for call in self._tape for value in call.outputs}
        outside = [name for name, value in self._outputs.items() if value.requires_grad and id(value) not in given]
        if outside and self._unit.backward:
            raise CannotJoinError(f"{outside[0]} needs a gradient and is made outside its graphs")

    def _places(self) -> list[BreakPlace]:
        """The boundaries of the tape by place, not yet by cost; beyond the limit they are listed without a price."""
        places: dict[tuple[str, str], BreakPlace] = {}
        for at, call in enumerate(self._tape[:-1]):
            ending = call.piece.ending
            where = f"{ending.file}:{ending.line}" if ending.file else "between two compiled calls"
            place = places.setdefault((where, ending.reason), BreakPlace(where=where, reason=ending.reason, is_break=ending.is_break))
            place.boundaries.append(at)
            place.why_not = place.why_not or self._made_between(at)
        found = list(places.values())
        for place in found[MOST_PLACES:]:
            place.why_not = place.why_not or f"only the first {MOST_PLACES} places are measured"
        return found

    def _made_between(self, at: int) -> str:
        """Why a boundary has no price of its own: eager code there makes a tensor that later graphs take."""
        import torch

        state = find_state(self._unit.original, self._unit.arguments, self._unit.keywords)
        before = {id(held.tensor) for held in state.held.values()}
        before |= {id(value) for call in self._tape[: at + 1] for value in (*call.inputs, *call.outputs)}
        new = [value for value in self._tape[at + 1].inputs if isinstance(value, torch.Tensor) and id(value) not in before]
        if any(value.requires_grad and not value.is_leaf for value in new):
            raise CannotJoinError("eager code between two graphs takes part in the backward, which joined graphs would not")
        made = [value for value in new if value.numel() > 1]
        return _MADE_BETWEEN if made else ""

    def _computed_outside(self, places: Sequence[BreakPlace]) -> str:
        """Why the joined graphs are less than the call without its breaks: eager code makes what they take, or what the call gives."""
        if any(place.why_not == _MADE_BETWEEN for place in places):
            return "eager code between graphs makes a tensor for a later graph, which the joined graphs do not compute"
        known = {id(held.tensor) for held in find_state(self._unit.original, self._unit.arguments, self._unit.keywords).held.values()}
        known |= {id(value) for call in self._tape for value in (*call.inputs, *call.outputs)}
        outside = [name for name, value in self._outputs.items() if id(value) not in known]
        return f"{outside[0]} is made outside the graphs, and the joined graphs do not compute it" if outside else ""

    def _segment(self, begin: int, end: int) -> JoinedPart:
        """The calls from `begin` up to `end` as one graph, which gives what later ones take, and what nothing takes; made once."""
        if (begin, end) not in self._parts:
            calls = self._tape[begin:end]
            later = {id(value) for call in self._tape[end:] for value in call.inputs}
            taken = {id(value) for call in self._tape for value in call.inputs}
            results = {id(value) for value in self._outputs.values()}
            given = {id(value) for call in calls for value in call.outputs}
            self._parts[begin, end] = join(calls, {key for key in given if key in later or key in results or key not in taken})
        return self._parts[begin, end]

    def _unbroken(self) -> Callable[[], Any]:
        """All graphs as one, behind one Dynamo entry of the kind that the call has: a module's where it is one, with the same options."""
        part = self._segment(0, len(self._tape))
        function = self._compiled(_like(self._unit.original, part.module), self._joined, **self._static())
        return self._warm(Replay(self._unit, [part], [function], self._output), 1)

    def _cut(self, places: Sequence[BreakPlace]) -> Callable[[], Any]:
        """The joined graphs, but for these places.

        Each part is entered through Dynamo, as the frame behind a graph break is; a part that another cut has is not compiled again.
        Between two parts the host waits for what the pause of the real call is longer than the replay's own.
        """
        boundaries = sorted(at for place in places for at in place.boundaries)
        ends = [at + 1 for at in boundaries]
        parts = [self._segment(begin, end) for begin, end in zip([0, *ends], [*ends, len(self._tape)], strict=True)]
        if self._walk is None:
            self._walk = self._compiled(walk_like(self._unit.original), self._joined, fullgraph=False, **self._static())
        functions = [self._functions.setdefault(id(part), _function(part.module)) for part in parts]
        replay = Replay(self._unit, parts, functions, self._output, through=self._walk)
        run = self._warm(replay, len(parts))
        replay.wait(self._longer_pauses(run, boundaries))
        return run

    def _static(self) -> dict[str, Any]:
        """Shapes are fixed while `_warm` compiles: `dynamic=False` is set in each call anew, so only where the call sets it as well."""
        return {} if self._options.get("dynamic") is None else {"dynamic": False}

    def _warm(self, replay: Replay, count: int) -> Callable[[], Any]:
        """The replay as a step of its own, called until it is compiled; it must enter so many graphs."""

        def replay_as_called() -> None:
            self._begin()
            replay()

        try:
            with static_shapes():
                for _ in range(_WARM_CALLS):
                    self._joined.times = []
                    replay_as_called()
        except Exception as error:  # the border around a candidate: a graph that torch cannot compile when joined
            raise CannotJoinError(f"the joined graphs do not run: {one_line(error)[:200]}") from error
        times, self._joined.times = self._joined.times, None
        if times is None or len(times) != count:
            raise CannotJoinError("torch compiles the joined graphs in other pieces")
        return replay_as_called

    def _begin(self) -> None:
        """Each call is a step of its own: what CUDA graphs gave to the last one may be written over, as behind a call of Dynamo's."""
        if self._cuda:
            import torch

            mark_step: Any = torch.compiler.cudagraph_mark_step_begin
            mark_step()

    def _step(self) -> Any:
        self._begin()
        return self._unit.run_step(self._function)

    def _longer_pauses(self, run: Callable[[], Any], boundaries: Sequence[int]) -> list[float]:
        """Seconds by which the call's pauses at these boundaries are longer than those of `run`, which has no others.

        Each call of one is set against the next of the other: medians of differences, since what else runs on the machine changes.
        """
        if not boundaries:
            return []
        rows: list[list[float]] = []
        until = time.monotonic() + _PAUSE_S
        while len(rows) < _PAUSE_CALLS or (len(rows) < _MOST_PAUSE_CALLS and time.monotonic() < until):
            theirs = self._pauses_once(self._step, self._watch, len(self._tape))
            own = self._pauses_once(run, self._joined, len(boundaries) + 1)
            rows.append([theirs[at] - found for at, found in zip(boundaries, own, strict=True)])
        return [statistics.median(column) for column in zip(*rows, strict=True)]

    def _pauses(self) -> list[float]:
        """Seconds from the return of each graph to the entry of the next: medians over some calls."""
        rows = [self._pauses_once(self._step, self._watch, len(self._tape)) for _ in range(_PAUSE_CALLS)]
        return [statistics.median(column) for column in zip(*rows, strict=True)]

    @staticmethod
    def _pauses_once(run: Callable[[], Any], watch: Watch, count: int) -> list[float]:
        watch.times = []
        run()
        times, watch.times = watch.times, None
        if len(times) != count:
            raise CannotJoinError("the call does not enter the same graphs each time")
        return [after[0] - before[1] for before, after in pairwise(times)]

    def _guard_sets(self) -> list[dict[str, Any]]:
        """Each guard set that a call evaluates, with its evaluations per call and what one takes."""
        entered = regions_entered(self._step)
        names = compiled_names()
        rows = []
        for key, calls in sorted(entered.items()):
            found = self._guards.found.get(key)
            rows.append({"id": key, "function": names.get(key, ""), "calls": calls, "us": found})
        return rows

    def _copy(self, call: Entered, at: int, name: str) -> dict[str, Any]:
        """The time of copying a tensor of this shape and layout onto this input, as the epilogue does."""
        import torch

        value = call.inputs[at]
        source = value.detach().clone()
        with torch.no_grad():
            timer = Timer(lambda: value.detach().copy_(source), cuda=self._cuda)
            calls = Timer.calls_for(timer.warm_up().call_s)
            samples = [block.wall_s * 1e3 / block.calls for block in (timer.block(calls) for _ in range(_MIN_ROUNDS // 2))]
        return {"name": name, "bytes": value.numel() * value.element_size(), "samples_ms": samples}


def _cuts(places: Sequence[int]) -> list[tuple[int, ...]]:
    """The sets of places that are timed: none, the first ones, and the last ones."""
    firsts = [tuple(places[:count]) for count in range(len(places) + 1)]
    lasts = [tuple(places[at:]) for at in range(len(places))]
    return list(dict.fromkeys([*firsts, *lasts]))


def _name(cut: Sequence[int]) -> str:
    return f"places {' '.join(map(str, cut))}"


def _prices(number: int, cuts: Sequence[tuple[int, ...]], samples: dict[str, list[float]]) -> list[float]:
    """Milliseconds that a place adds to those before it and to those behind it, the mean of the two, round by round."""
    every = max(cuts, key=len)
    upto, behind = [place for place in every if place <= number], [place for place in every if place >= number]
    columns = [samples[_name(cut)] for cut in (upto, upto[:-1], behind, behind[1:])]
    return [((first - without) + (last - left)) / 2 for first, without, last, left in zip(*columns, strict=True)]


def _function(graph: Any) -> Callable[..., Any]:
    """A plain function around a graph, with code of its own: Dynamo counts what it compiled by code."""

    def joined(*args: Any) -> Any:
        return graph(*args)

    joined.__code__ = joined.__code__.replace()
    return joined


def _like(original: Any, graph: Any) -> Any:
    """A module around a graph where the original is one, else a function."""
    import torch

    class Joined(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.graph = graph

        def forward(self, *args: Any) -> Any:
            return self.graph(*args)

    return Joined().train(original.training) if isinstance(original, torch.nn.Module) else _function(graph)


def _take_turns(variants: dict[str, Callable[[], Any]], *, cuda: bool, max_s: float) -> dict[str, list[float]]:
    """Blocks of each in random order per round, at least 20 rounds, until the time is used up; milliseconds per call."""
    timers = {name: Timer(call, cuda=cuda) for name, call in variants.items()}
    calls = {name: Timer.calls_for(timer.warm_up().call_s) for name, timer in timers.items()}
    samples: dict[str, list[float]] = {name: [] for name in timers}
    source, began = random.Random(0), time.monotonic()
    for number in range(_MAX_ROUNDS):
        if number >= _MIN_ROUNDS and time.monotonic() - began > max_s:
            break
        for name in source.sample(list(timers), len(timers)):
            block = timers[name].block(calls[name])
            samples[name].append(block.wall_s * 1e3 / block.calls)
    return samples
