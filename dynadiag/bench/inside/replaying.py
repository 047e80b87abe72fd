"""A call made from joined graphs: one part after the other with what each takes and gives, then backward as the call goes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from dynadiag.bench.inside.joining import Part
from dynadiag.bench.inside.results import tensors_in
from dynadiag.bench.inside.steps import CallUnit
from dynadiag.torch_compat.dynamo.break_costs import leave_frame


@dataclass(kw_only=True)
class _Act:
    """One part: what is called, the slots of what it takes and gives, those that nothing reads after it, and how long the host waits."""

    function: Callable[..., Any]
    takes: tuple[int, ...]
    gives: slice
    drops: tuple[int, ...]
    wait_s: float = 0.0


def walk(acts: Sequence[_Act], slots: list[Any]) -> None:
    """One act after the other. No comprehension and no helper: where Dynamo watches the calls in here, each would be a frame of its own."""
    for act in acts:
        args = []
        for at in act.takes:
            args.append(slots[at])
        slots[act.gives] = act.function(*args)
        del args
        for at in act.drops:
            slots[at] = None
        if act.wait_s:
            until = perf_counter() + act.wait_s
            while perf_counter() < until:
                pass


def walk_like(original: Any) -> Any:
    """`walk` as a module where the original is one, else itself; to be compiled: Dynamo then leaves the walk alone and enters each part.

    So a part is entered as the frame behind a graph break is: with Dynamo on, from a frame that runs as it is.
    """
    import torch

    class Walk(torch.nn.Module):
        def forward(self, acts: Sequence[_Act], slots: list[Any]) -> None:
            walk(acts, slots)

    leave_frame(walk)
    leave_frame(Walk.forward)
    return Walk() if isinstance(original, torch.nn.Module) else walk


class Replay:
    """Calling it does what one call of `unit` does, by `parts`; `functions` stand for them, `output` is what the call gave on the tape.

    Between two parts the host waits as `wait` says; `through` is what goes from part to part. What no later part takes is dropped, as the
    call's own frames drop it; CUDA graphs count what is alive.
    """

    def __init__(
        self,
        unit: CallUnit,
        parts: Sequence[Part],
        functions: Sequence[Callable[..., Any]],
        output: Any,
        *,
        through: Callable[[Sequence[_Act], list[Any]], None] = walk,
    ) -> None:
        self._unit = unit
        self._output = output
        self._through = through
        self._slots: list[Any] = _from_outside(parts)
        outside = len(self._slots)
        at = {id(value): number for number, value in enumerate(self._slots)}
        self._acts: list[_Act] = []
        for part, function in zip(parts, functions, strict=True):
            takes, first = tuple(at[id(value)] for value in part.inputs), len(self._slots)
            at |= {key: first + number for number, key in enumerate(part.outputs)}
            self._slots += [None] * len(part.outputs)
            self._acts.append(_Act(function=function, takes=takes, gives=slice(first, len(self._slots)), drops=()))
        named = {name: value for name, value in tensors_in("output", output).items() if id(value) in at}
        self._results = [(name, at[id(value)]) for name, value in named.items() if value.requires_grad]
        self._drop_early(outside, {at[id(value)] for value in named.values()})

    def _drop_early(self, first: int, kept: set[int]) -> None:
        """Each slot that a part fills and the call does not give is emptied behind the last part that takes it."""
        last: dict[int, int] = {}
        for number, act in enumerate(self._acts):
            last |= dict.fromkeys((*range(act.gives.start, act.gives.stop), *act.takes), number)
        for number, act in enumerate(self._acts):
            act.drops = tuple(slot for slot, user in last.items() if user == number and slot >= first and slot not in kept)

    def wait(self, seconds: Sequence[float]) -> None:
        """How long the host waits after each part but the last."""
        for act, wait_s in zip(self._acts, seconds, strict=False):
            act.wait_s = max(0.0, wait_s)

    def __call__(self) -> None:
        """One call."""
        self._unit.drop_gradients()
        slots = self._slots.copy()
        self._through(self._acts, slots)
        # The call looks through its output each time; so does this.
        {name: value for name, value in tensors_in("output", self._output).items() if value.requires_grad}
        if self._unit.backward:
            self._unit.go_back({name: slots[at] for name, at in self._results})


def _from_outside(parts: Sequence[Part]) -> list[Any]:
    """What parts take and none before them gives."""
    found: dict[int, Any] = {}
    made: set[int] = set()
    for part in parts:
        found |= {id(value): value for value in part.inputs if id(value) not in made}
        made.update(part.outputs)
    return list(found.values())
