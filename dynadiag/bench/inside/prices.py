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

from dynadiag.bench.inside.joining import CannotJoinError, Part, join
from dynadiag.bench.inside.loading import one_line
from dynadiag.bench.inside.patching import CompileSwitch
from dynadiag.bench.inside.probing import regions_entered
from dynadiag.bench.inside.replaying import Replay
from dynadiag.bench.inside.results import tensors_in
from dynadiag.bench.inside.snapshot import take_snapshot
from dynadiag.bench.inside.state import find_state
from dynadiag.bench.inside.steps import CallUnit, Step
from dynadiag.bench.inside.timing import Timer
from dynadiag.torch_compat.bench_prices import (
    Entered,
    GuardTimes,
    Watch,
    compiled_names,
    static_shapes,
    timed_guards,
    watched_backend,
)

MOST_PLACES = 8
_PAUSE_CALLS = 15
_WARM_CALLS = 3
_MIN_ROUNDS, _MAX_ROUNDS = 20, 60


@dataclass(kw_only=True)
class Place:
    """A place where graphs end: the boundaries (after which call of the tape), why, and whether a break is what ends them."""

    where: str
    reason: str
    is_break: bool
    boundaries: list[int] = field(default_factory=list)
    why_not: str = ""
    pause_s: float = 0.0


def prices_of(step: Step, switch: CompileSwitch, *, cuda: bool, max_s: float) -> dict[str, Any]:
    """Samples of the call, of its joined graphs and of each place; guard sets and copies. `why_not` says why there are none."""
    if not isinstance(step, CallUnit) or step.own_backward or (step.compiled_by == "program" and not step.taken):
        return {"why_not": "only a call whose backward is ours can be taken apart, not a whole step"}
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
        self._parts: dict[tuple[int, int], Part] = {}
        self._direct: dict[int, Callable[..., Any]] = {}
        self._guards = GuardTimes()
        self._tape: list[Entered] = []
        self._output: Any = None
        self._outputs: dict[str, Any] = {}

    def measure(self, max_s: float) -> dict[str, Any]:
        """Everything; raises CannotJoinError where graphs cannot be joined."""
        function = self._compiled(self._unit.original, self._watch)
        with timed_guards(self._guards):
            for _ in range(_WARM_CALLS):
                self._call(function)
        self._record(function)
        guards = self._guard_sets(function)
        copies = [self._copy(call, at, name) for call in self._tape for at, name in call.piece.copied_back]
        places = self._places()
        facts = {"guards": guards, "copy_backs": copies, "graph_calls": len(self._tape)}
        if not places:
            return {**facts, "places": [], "why_not": ""}
        pauses = self._pauses(function)
        for place in places:
            place.pause_s = sum(pauses[at] for at in place.boundaries)
        variants: dict[str, Callable[[], Any]] = {"step": lambda: self._call(function)}
        variants["unbroken"] = self._unbroken()
        cuts = _cuts([number for number, place in enumerate(places) if not place.why_not])
        variants |= {_name(cut): self._cut([places[number] for number in cut], pauses) for cut in cuts}
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

    def _record(self, function: Any) -> None:
        self._watch.tape = self._tape
        output = self._call(function)
        self._watch.tape = None
        self._output, self._outputs = output, tensors_in("output", output)
        if not self._tape:
            raise CannotJoinError("no compiled graph was called")
        given = {id(value) for call in self._tape for value in call.outputs}
        outside = [name for name, value in self._outputs.items() if value.requires_grad and id(value) not in given]
        if outside and self._unit.backward:
            raise CannotJoinError(f"{outside[0]} needs a gradient and is made outside its graphs")

    def _places(self) -> list[Place]:
        """The boundaries of the tape by place, the dearest unknown yet; beyond the limit they are listed without a price."""
        places: dict[tuple[str, str], Place] = {}
        for at, call in enumerate(self._tape[:-1]):
            ending = call.piece.ending
            where = f"{ending.file}:{ending.line}" if ending.file else "between two compiled calls"
            place = places.setdefault((where, ending.reason), Place(where=where, reason=ending.reason, is_break=ending.is_break))
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
        return "eager code there makes a tensor for a later graph: what a fix would still have to compute is not known" if made else ""

    def _segment(self, begin: int, end: int) -> Part:
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
        return self._warm(Replay(self._unit, [part], [self._through_dynamo(part)], self._output), 1)

    def _cut(self, places: Sequence[Place], pauses: Sequence[float]) -> Callable[[], Any]:
        """The joined graphs, but for these places.

        The backend's functions are called without Dynamo, whose look-ups are in the pauses already. Between two parts the host waits for
        what the pause of the real call is longer than the replay's own.
        """
        boundaries = sorted(at for place in places for at in place.boundaries)
        ends = [at + 1 for at in boundaries]
        parts = [self._segment(begin, end) for begin, end in zip([0, *ends], [*ends, len(self._tape)], strict=True)]
        replay = Replay(self._unit, parts, self._direct_functions(parts), self._output)
        run = self._warm(replay, len(parts))
        own = self._measured_pauses(run, self._joined, len(parts))
        replay.wait([pauses[at] - found for at, found in zip(boundaries, own, strict=True)])
        return run

    def _direct_functions(self, parts: Sequence[Part]) -> list[Callable[..., Any]]:
        """The backend's own functions for these parts; a part that another replay has is not compiled again."""
        if any(id(part) not in self._direct for part in parts):
            functions = [self._direct.get(id(part)) or self._through_dynamo(part) for part in parts]
            replay, values = Replay(self._unit, parts, functions, self._output), []
            self._warm(replay, len(parts))
            self._begin()
            self._joined.tape = []
            replay(lambda taken, given: values.append((taken, given)))
            tape, self._joined.tape = self._joined.tape, None
            for part, call, (taken, given) in zip(parts, tape, values, strict=True):
                self._direct.setdefault(id(part), _direct(call, taken, given))
        return [self._direct[id(part)] for part in parts]

    def _through_dynamo(self, part: Part) -> Callable[..., Any]:
        """A part compiled as the call is; shapes are fixed by `_warm`, since `dynamic=False` would be set in each call anew."""
        same = {} if self._options.get("dynamic") is None else {"dynamic": False}
        function: Callable[..., Any] = self._compiled(_like(self._unit.original, part.module), self._joined, **same)
        return function

    def _warm(self, replay: Replay, count: int) -> Callable[[], Any]:
        """The replay as a step of its own, called until it is compiled; it must enter so many graphs."""

        def run() -> None:
            self._begin()
            replay()

        try:
            with static_shapes():
                for _ in range(_WARM_CALLS):
                    self._joined.times = []
                    run()
        except Exception as error:  # the border around a candidate: a graph that torch cannot compile when joined
            raise CannotJoinError(f"the joined graphs do not run: {one_line(error)[:200]}") from error
        times, self._joined.times = self._joined.times, None
        if times is None or len(times) != count:
            raise CannotJoinError("torch compiles the joined graphs in other pieces")
        return run

    def _begin(self) -> None:
        """Each call is a step of its own: what CUDA graphs gave to the last one may be written over, as behind a call of Dynamo's."""
        if self._cuda:
            import torch

            mark_step: Any = torch.compiler.cudagraph_mark_step_begin
            mark_step()

    def _call(self, function: Any) -> Any:
        self._begin()
        return self._unit.run(function)

    def _pauses(self, function: Any) -> list[float]:
        return self._measured_pauses(lambda: self._call(function), self._watch, len(self._tape))

    def _measured_pauses(self, run: Callable[[], Any], watch: Watch, count: int) -> list[float]:
        """Seconds from the return of each graph to the entry of the next: medians over some calls."""
        rows = []
        for _ in range(_PAUSE_CALLS):
            watch.times = []
            run()
            times, watch.times = watch.times, None
            if len(times) == count:
                rows.append([after[0] - before[1] for before, after in pairwise(times)])
        if not rows:
            raise CannotJoinError("the call does not enter the same graphs each time")
        return [statistics.median(column) for column in zip(*rows, strict=True)]

    def _guard_sets(self, function: Any) -> list[dict[str, Any]]:
        """Each guard set that a call evaluates, with its evaluations per call and what one takes."""
        entered = regions_entered(lambda: self._call(function))
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


def _like(original: Any, graph: Any) -> Any:
    """A module around a graph where the original is one, else a function; with code of its own: Dynamo counts what it compiled by code."""
    import torch

    class Joined(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.graph = graph

        def forward(self, *args: Any) -> Any:
            return self.graph(*args)

    Joined.forward.__code__ = Joined.forward.__code__.replace()
    if isinstance(original, torch.nn.Module):
        return Joined().train(original.training)

    def joined(*args: Any) -> Any:
        return graph(*args)

    joined.__code__ = joined.__code__.replace()
    return joined


def _direct(call: Entered, taken: Sequence[Any], given: Sequence[Any]) -> Callable[..., Any]:
    """The backend's own function for a part, taking and giving what the part does.

    Dynamo hands a graph its inputs in another order, parameters and buffers among them, and may give fewer or more outputs than the
    function; identity tells which is which.
    """
    places = {id(value): at for at, value in enumerate(taken)}
    takes = [places.get(id(value)) for value in call.inputs]
    came = {id(value): at for at, value in enumerate(call.outputs)}
    wanted = [came.get(id(value)) for value in given]
    if None in wanted:
        raise CannotJoinError("a joined graph gives what its backend's function does not")
    # Only what no part gives: the rest would keep a call's tensors in memory, and a CUDA graph from ending.
    run, constants = call.run, [value if place is None else None for place, value in zip(takes, call.inputs, strict=True)]

    def direct(*args: Any) -> Any:
        outputs = run(*[constants[at] if place is None else args[place] for at, place in enumerate(takes)])
        return [outputs[at] for at in wanted if at is not None]

    return direct


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
