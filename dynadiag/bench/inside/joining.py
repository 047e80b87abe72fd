"""Graphs of one call joined to fewer graphs: what the call would be without some of its graph breaks; and the call made from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from time import perf_counter
from typing import Any

from dynadiag.bench.inside.results import tensors_in
from dynadiag.bench.inside.steps import CallUnit
from dynadiag.torch_compat.dynamo.break_costs import Entered, is_module_state, leave_frame


class CannotJoinError(Exception):
    """Two graphs cannot be joined; the message says why, in one line."""


@dataclass(frozen=True, kw_only=True)
class JoinedPart:
    """A joined graph with what it is called with (tensors by the identity that they had on the tape) and what it gives, likewise.

    Parameters and buffers are attributes of `module`, as they are of the program's: as arguments they would cost other guards, and CUDA
    graphs would copy them in each call.
    """

    module: Any
    inputs: tuple[Any, ...]
    outputs: tuple[int, ...]


def join(entered: Sequence[Entered], wanted: set[int]) -> JoinedPart:
    """One graph that does what these did one after the other; it gives the outputs whose identity is in `wanted`.

    Values go from graph to graph by identity: an output that a later graph gets as an input becomes an edge. Numbers stay as they were.
    """
    import torch

    joined = torch.fx.Graph()
    root: dict[str, Any] = {}
    outside = _from_outside(entered)
    inputs = [value for value in outside if not is_module_state(value)]
    made = {id(value): joined.placeholder(f"input_{number}") for number, value in enumerate(inputs)}
    for value in outside:
        if is_module_state(value):
            name = f"state_{len(root)}"
            root[name] = value
            made[id(value)] = joined.create_node("get_attr", name)
    outputs: dict[int, Any] = {}
    for number, call in enumerate(entered):
        placeholders = [node for node in call.piece.graph.graph.nodes if node.op == "placeholder"]
        known = {node: _known(value, made) for node, value in zip(placeholders, call.inputs, strict=True)}
        results = _copy_into(joined, call.piece.graph, known, root, f"graph_{number}_")
        for value, node in zip(call.outputs, results, strict=True):
            if isinstance(value, torch.Tensor) and isinstance(node, torch.fx.Node):
                made[id(value)] = outputs[id(value)] = node
    given = [key for key in outputs if key in wanted]
    joined.output(tuple(outputs[key] for key in given))
    return JoinedPart(module=torch.fx.GraphModule(root, joined), inputs=tuple(inputs), outputs=tuple(given))


def _from_outside(entered: Sequence[Entered]) -> list[Any]:
    """The tensors that come from none of these graphs, in the order in which they are first taken."""
    import torch

    found: dict[int, Any] = {}
    given: set[int] = set()
    for call in entered:
        found.update({id(value): value for value in call.inputs if isinstance(value, torch.Tensor) and id(value) not in given})
        given |= {id(value) for value in call.outputs}
    return list(found.values())


def _known(value: Any, made: dict[int, Any]) -> Any:
    import torch

    if isinstance(value, torch.Tensor):
        return made[id(value)]
    if isinstance(value, bool | int | float | str | None):
        return value
    raise CannotJoinError(f"a graph takes a {type(value).__name__}")


def _copy_into(joined: Any, graph: Any, known: dict[Any, Any], root: dict[str, Any], prefix: str) -> list[Any]:
    """Copy the operations; what the graph gives."""
    results: list[Any] = []
    for node in graph.graph.nodes:
        if node.op == "output":
            results = [known.get(item, item) if hasattr(item, "op") else item for item in node.args[0]]
        elif node.op != "placeholder":
            copied = joined.node_copy(node, lambda item: known[item])
            if node.op in ("get_attr", "call_module"):
                copied.target = prefix + str(node.target).replace(".", "_")
                root[copied.target] = attrgetter(str(node.target))(graph)
            known[node] = copied
    return results


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
        parts: Sequence[JoinedPart],
        functions: Sequence[Callable[..., Any]],
        output: Any,
        *,
        through: Callable[[Sequence[_Act], list[Any]], None] = walk,
    ) -> None:
        self._unit = unit
        self._output = output
        self._through = through
        self._slots: list[Any] = _arrives_from_outside(parts)
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


def _arrives_from_outside(parts: Sequence[JoinedPart]) -> list[Any]:
    """What parts take and none before them gives."""
    found: dict[int, Any] = {}
    made: set[int] = set()
    for part in parts:
        found |= {id(value): value for value in part.inputs if id(value) not in made}
        made.update(part.outputs)
    return list(found.values())
