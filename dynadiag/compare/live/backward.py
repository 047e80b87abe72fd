"""The program's own backward through one compiled call, seen by hooks on autograd nodes: cotangents that came, gradients that left."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from dynadiag.compare.aliasing import snapshot
from dynadiag.torch_compat.aot.autograd_engine import at_end_of_backward, graph_task, unseen, will_run

Edge = tuple[Any, int]
"""A place in autograd's graph: a node and which of its gradients."""
_MOST_STEPS = 100_000
_BEYOND = "its autograd graph reaches beyond its inputs"
_MIXED = "its outputs are computed from each other in autograd's graph"
_LARGE = "its autograd graph is too large to follow"


@dataclass(frozen=True)
class SeenBackward:
    """One backward: cotangents by position of the outputs, gradients by position of the inputs that require one.

    `complete` says that every output had a cotangent. `unwanted` are inputs whose gradient this backward may not have asked for.
    """

    cotangents: Mapping[int, torch.Tensor]
    gradients: Mapping[int, torch.Tensor | None]
    complete: bool
    unwanted: frozenset[int]


@dataclass
class _Task:
    """What one run of the autograd engine has brought so far."""

    cotangents: dict[int, torch.Tensor] = field(default_factory=dict)
    gradients: dict[int, torch.Tensor | None] = field(default_factory=dict)
    unwanted: set[int] = field(default_factory=set)
    queued: bool = False


def edges_of(values: Sequence[Any]) -> dict[int, Edge]:
    """Where the gradient of each value goes, by position; nothing for those that require none."""
    return {at: edge for at, value in enumerate(values) if isinstance(value, torch.Tensor) and (edge := _edge(value)) is not None}


def _edge(value: torch.Tensor) -> Edge | None:
    if not value.requires_grad:
        return None
    if value.grad_fn is not None:
        return value.grad_fn, value.output_nr
    with torch.enable_grad():
        through = value.view_as(value).grad_fn
    return None if through is None else (through.next_functions[0][0], 0)


class Backward:
    """Watches the first backward through a call and tells `finished` of it once. It keeps no tensor and no node of the call alive."""

    def __init__(
        self, inputs: Mapping[int, Edge], finished: Callable[[SeenBackward], None], failed: Callable[[BaseException], None]
    ) -> None:
        self._inputs = dict(inputs)
        self._finished: Callable[[SeenBackward], None] | None = finished
        self._failed = failed
        self._tasks: dict[int, _Task] = {}
        self._tops: set[int] = set()
        self._entries = 0

    @property
    def watches(self) -> bool:
        """Whether any gradient flows through the call."""
        return self._entries > 0

    def attach(self, outputs: Sequence[Any]) -> str | None:
        """Put the hooks in; in words why not, when this call's autograd graph cannot be told apart from the program's."""
        found = _BackwardWalk(self._inputs, outputs)
        if found.why_not is not None:
            return found.why_not
        self._tops, self._entries = {at for tops in found.tops.values() for _, at in tops}, len(found.entries)
        for node, tops in found.tops.items():
            node.register_prehook(unseen(self._before(tops)))
        for node, places in found.entries.items():
            node.register_hook(unseen(self._after(places)))
        return None

    def _before(self, tops: list[tuple[int, int]]) -> Callable[..., None]:
        def dynadiag_cotangents(gradients: Sequence[torch.Tensor | None]) -> None:
            self._guarded(lambda task: self._take_cotangents(task, [(gradients[nr], at) for nr, at in tops]))

        return dynadiag_cotangents

    def _after(self, places: list[tuple[int, int]]) -> Callable[..., None]:
        def dynadiag_gradients(gradients: Sequence[torch.Tensor | None], _: object) -> None:
            self._guarded(lambda task: self._take_gradients(task, [(gradients[slot], at) for slot, at in places]))

        return dynadiag_gradients

    def _guarded(self, take: Callable[[_Task], None]) -> None:
        if self._finished is None:
            return
        try:
            take(self._tasks.setdefault(graph_task(), _Task()))
        except Exception as error:  # noqa: BLE001 - border: our hooks in the user's process
            self._failed(error)

    @staticmethod
    def _take_cotangents(task: _Task, came: Iterable[tuple[torch.Tensor | None, int]]) -> None:
        for value, at in came:
            if value is not None:
                task.cotangents[at] = snapshot([value.detach()])[0]

    def _take_gradients(self, task: _Task, went: Iterable[tuple[torch.Tensor | None, int]]) -> None:
        alone = self._entries == 1
        for value, at in went:
            before = task.gradients.get(at)
            if value is None or before is not None:
                task.gradients[at] = before if value is None else before + value.detach()  # type: ignore[operator]
            else:
                task.gradients[at] = value.detach() if alone else snapshot([value.detach()])[0]
            if not will_run(self._inputs[at][0]):
                task.unwanted.add(at)
        if alone:
            self._finish(task)
        elif not task.queued:
            task.queued = True
            at_end_of_backward(unseen(lambda: self._guarded(lambda _: self._finish(task))))

    def _finish(self, task: _Task) -> None:
        finished, self._finished = self._finished, None
        self._tasks.clear()
        gradients = {at: task.gradients.get(at) for at in self._inputs}
        self._inputs.clear()
        if finished is not None:
            finished(SeenBackward(task.cotangents, gradients, self._tops == task.cotangents.keys(), frozenset(task.unwanted)))


class _BackwardWalk:
    """The nodes between outputs and inputs: `tops` get the cotangents of outputs, `entries` give the gradients of inputs.

    An output that reaches the inputs only through another one (a view of it) is left out: that one's cotangent includes its own.
    """

    def __init__(self, inputs: Mapping[int, Edge], outputs: Sequence[Any]) -> None:
        self.tops: dict[Any, list[tuple[int, int]]] = {}
        self.entries: dict[Any, list[tuple[int, int]]] = {}
        self.why_not: str | None = None
        self._inputs = {edge: at for at, edge in reversed(list(inputs.items()))}
        self._upstream = {node for node, _ in inputs.values()}
        self._steps = 0
        edges = {at: edge for at, edge in edges_of(outputs).items() if edge not in self._inputs and edge[0] not in self._upstream}
        self._outputs = set(edges.values())
        done: set[Edge] = set()
        for at, edge in edges.items():
            if edge not in done and self.why_not is None:
                done.add(edge)
                self._from_output(at, edge)

    def _from_output(self, at: int, edge: Edge) -> None:
        inside, inputs, others = self._follow(edge[0])
        if inputs and others:
            self.why_not = self.why_not or _MIXED
        elif inputs:
            self.tops.setdefault(edge[0], []).append((edge[1], at))
            for node in inside:
                if node not in self.entries and (places := self._places(node)):
                    self.entries[node] = places

    def _follow(self, start: Any) -> tuple[set[Any], bool, bool]:
        """The nodes from here to the inputs or to other outputs, and whether one of each was reached."""
        inside, waiting, inputs, others = {start}, [start], False, False
        while waiting:
            node = waiting.pop()
            for edge in node.next_functions:
                self._steps += 1
                if edge in self._inputs:
                    inputs = True
                elif edge in self._outputs:
                    others = True
                elif edge[0] is not None and edge[0] not in inside and edge[0] not in self._upstream:
                    if hasattr(edge[0], "variable"):
                        self.why_not = _BEYOND
                    inside.add(edge[0])
                    waiting.append(edge[0])
            if self._steps > _MOST_STEPS:
                self.why_not = _LARGE
                break
        return inside, inputs, others

    def _places(self, node: Any) -> list[tuple[int, int]]:
        return [(slot, self._inputs[edge]) for slot, edge in enumerate(node.next_functions) if edge in self._inputs]
