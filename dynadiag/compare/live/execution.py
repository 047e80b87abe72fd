"""One eager call of a copied graph: what it gives, which inputs it writes on which line, and what in it is random."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import Node, map_arg

from dynadiag.compare.aliasing import Change, is_plain, relation, same_bits, snapshot
from dynadiag.compare.judge import Runs
from dynadiag.compare.live.graph_copy import GraphCopy
from dynadiag.compare.noise import noisy_runs, wider, wider_dtype
from dynadiag.torch_compat.dispatch.live_call import RandomState, is_public, is_triton
from dynadiag.torch_compat.pytree import tree_leaves, tree_map_only

# Results whose memory nobody has written: they are filled, each call with another value.
_EMPTY = frozenset(
    {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "empty_permuted", "empty_quantized", "Tensor", "FloatTensor"}
)
# Methods and functions that make whole numbers of floats.
_CONVERSIONS = frozenset({"long", "int", "short", "to", "type", "type_as", "_to_copy", "convert_element_type", "multinomial"})
ASSERTING_DEVICES = ("cuda",)
_HALVES = (torch.bfloat16, torch.float16)
_NOISY_RUNS = 3


@dataclass
class Execution:
    """What one call gave. `written` has the nodes that wrote each input, `random_...` the positions whose values depend on random numbers.

    `random` says whether any were drawn at all. `indices` are whole numbers made of floats, which may be used as an index, on a device
    where an index out of range ends the process.
    """

    outputs: list[Any] = field(default_factory=list)
    nodes: list[Node | None] = field(default_factory=list)
    written: dict[int, list[Node]] = field(default_factory=dict)
    random_outputs: frozenset[int] = frozenset()
    random_inputs: frozenset[int] = frozenset()
    random: bool = False
    indices: dict[Node, torch.Tensor] = field(default_factory=dict)
    coarsest: torch.dtype | None = None


@dataclass(frozen=True, kw_only=True)
class How:
    """The value that unwritten memory is filled with; whether to compute in float64; whether to look at values to see who writes.

    `indices` are used as they are: a call on other inputs must not make others, as a device assertion would end the user's process.
    """

    filling: float = 0.0
    wide: bool = False
    watch_values: bool = False
    indices: Mapping[Node, torch.Tensor] = field(default_factory=dict)


def execute(copy: GraphCopy, tensors: Sequence[Any], how: How, *, refused: list[Node] | None = None) -> Execution:
    """Call it on placeholders and attributes (`GraphCopy.names`), which it may write. Raises what an op raises.

    The node of a public operator that raised is put into `refused`: the same call outside of any graph would raise too.
    """
    runner = _Runner(copy, tensors, how)
    try:
        return runner.run_nodes()
    except (NotImplementedError, TypeError, MemoryError, torch.OutOfMemoryError):
        raise  # of the machine, or of how a graph is called
    except Exception:
        if refused is not None and runner.calling is not None and is_public(runner.calling):
            refused.append(runner.calling)
        raise


class _Runner:
    def __init__(self, copy: GraphCopy, tensors: Sequence[Any], how: How) -> None:
        self._copy, self._tensors, self._how = copy, list(tensors), how
        self._done = Execution()
        self.calling: Node | None = None
        self._env: dict[Node, Any] = {}
        self._tainted: set[Node] = set()
        self._dice = RandomState()
        self._places: dict[int, Node] = {}
        self._versions = [self._version(value) for value in self._tensors]
        self._values = [value.detach().clone() if how.watch_values and is_plain(value) else None for value in self._tensors]
        self._last_use = _last_uses(copy.graph)

    def run_nodes(self) -> Execution:
        """Every node in its order."""
        placeholders = sum(node.op == "placeholder" for node in self._copy.graph.nodes)
        tensors = [name for name, value in self._copy.attributes.items() if isinstance(value, torch.Tensor)]
        attributes = {**self._copy.attributes, **dict(zip(tensors, self._tensors[placeholders:], strict=True))}
        position = 0
        for node in self._copy.graph.nodes:
            if node.op == "placeholder":
                self._env[node], self._places[position] = self._tensors[position], node
                position += 1
            elif node.op == "get_attr":
                self._env[node] = attributes[str(node.target)]
                if node.target in tensors:
                    self._places[placeholders + tensors.index(str(node.target))] = node
            elif node.op == "output":
                self._finish(node)
            else:
                self._env[node] = self._call(node)
                for spent in self._last_use.get(node, ()):
                    self._env.pop(spent, None)
        return self._done

    def _call(self, node: Node) -> Any:
        if node in self._how.indices:
            return self._how.indices[node].clone()
        args, kwargs = map_arg(node.args, self._value), map_arg(node.kwargs, self._value)
        if self._how.wide:
            args, kwargs = tree_map_only(torch.dtype, wider_dtype, (args, kwargs))
            if is_triton(node.target):
                raise TypeError("a Triton kernel is not called with a dtype other than the user's")
        unseen = self._drawn_on(node)
        self.calling = node
        if node.op == "call_method":
            name = {"float": "double", "half": "double", "bfloat16": "double"}.get(str(node.target), str(node.target))
            result = getattr(args[0], name if self._how.wide else str(node.target))(*args[1:], **kwargs)
        else:
            target: Any = node.target if node.op == "call_function" else self._copy.attributes[str(node.target)]
            result = target(*args, **kwargs)
        self.calling = None
        if _name(node) in _EMPTY and is_plain(result):
            _fill(result, self._how.filling)
        self._note(node, result, (args, kwargs))
        self._tainted.update(source for source, before in unseen.items() if not same_bits(before, self._env[source]))
        return result

    def _drawn_on(self, node: Node) -> dict[Node, torch.Tensor]:
        """Copies of the inputs that a call with random values could write without a trace: a batch norm moves no version counter of its
        means (torch 2.6 to 2.15), nor does an operator that declares no write.
        """
        if not any(source in self._tainted for source in node.all_input_nodes):
            return {}
        known = {source: self._env[source] for source in node.all_input_nodes if source.op in ("placeholder", "get_attr")}
        return {
            source: value.detach().clone()
            for source, value in known.items()
            if source not in self._tainted and is_plain(value) and not value.requires_grad
        }

    def _value(self, node: Node) -> Any:
        return self._env[node]

    def _note(self, node: Node, result: Any, arguments: Any) -> None:
        for value in tree_leaves(result):
            if isinstance(value, torch.Tensor) and value.dtype in _HALVES:
                self._done.coarsest = torch.bfloat16 if torch.bfloat16 in (value.dtype, self._done.coarsest) else torch.float16
        if _name(node) in _CONVERSIONS and is_plain(result) and _is_index(result) and result.device.type in ASSERTING_DEVICES:
            self._done.indices[node] = result.clone()
        drew = self._dice.moved()
        random = drew or any(source in self._tainted for source in node.all_input_nodes)
        written = self._note_writes(node)
        if random:
            self._tainted.add(node)
            self._spread(tree_leaves(result) + (tree_leaves(arguments) if _writes(node) else []))
            self._tainted.update(self._places[at] for at in written)

    def _spread(self, values: list[Any]) -> None:
        """What shares memory with a random value that was written is random too."""
        written = [value for value in values if is_plain(value)]
        for node, known in self._env.items():
            if (
                node not in self._tainted
                and is_plain(known)
                and any(relation(known, value) in ("same tensor", "overlap") for value in written)
            ):
                self._tainted.add(node)

    def _note_writes(self, node: Node) -> list[int]:
        found = []
        for at, value in enumerate(self._tensors):
            if isinstance(value, torch.Tensor) and self._changed(at, value):
                self._done.written.setdefault(at, []).append(node)
                found.append(at)
        return found

    def _changed(self, at: int, value: torch.Tensor) -> bool:
        version = self._version(value)
        before = self._values[at]
        if before is not None and not same_bits(before, value):
            self._values[at] = value.detach().clone()
            return True
        if version != self._versions[at]:
            self._versions[at] = version
            return not self._how.watch_values
        return False

    @staticmethod
    def _version(value: Any) -> int:
        return value._version if is_plain(value) and not value.is_inference() else 0

    def _finish(self, node: Node) -> None:
        made = tree_leaves(node.args[0])
        self._done.outputs = [self._env[item] if isinstance(item, Node) else item for item in made]
        self._done.nodes = [element if isinstance(element, Node) else None for element in made]
        self._done.random_outputs = frozenset(at for at, entry in enumerate(made) if entry in self._tainted)
        self._done.random = bool(self._tainted)
        self._done.random_inputs = frozenset(at for at, child in self._places.items() if child in self._tainted)


def _name(node: Node) -> str:
    return str(getattr(node.target, "__name__", node.target)).split(".")[0]


def _is_index(value: torch.Tensor) -> bool:
    return not (value.is_floating_point() or value.is_complex() or value.dtype is torch.bool)


def _writes(node: Node) -> bool:
    name = _name(node)
    return name.endswith("_") or name in ("setitem", "auto_functionalized") or "out" in node.kwargs or is_triton(node.target)


def _fill(value: torch.Tensor, filling: float) -> None:
    with torch.no_grad():
        value.detach().fill_(filling if value.is_floating_point() or value.is_complex() else 2 if filling != filling else int(filling))


def _last_uses(graph: Any) -> dict[Node, list[Node]]:
    """Which values nobody needs after each node."""
    last: dict[Node, Node] = {}
    for node in graph.nodes:
        for source in node.all_input_nodes:
            last[source] = node
    spent: dict[Node, list[Node]] = {}
    for source, node in last.items():
        if source.op not in ("placeholder", "get_attr"):
            spent.setdefault(node, []).append(source)
    return spent


def noise_anchors(
    pristine: Sequence[Any],
    coarsest: torch.dtype | None,
    indices: Mapping[Node, torch.Tensor],
    call: Callable[[list[Any], How], Sequence[Sequence[Any]]],
    *,
    parts: int,
    wide: bool = True,
) -> list[Runs]:
    """What `call(inputs, how)` gives where only noise differs, for each of its `parts`: in float64, and on inputs changed in their last
    digits with noisy sums, and on the same inputs with noisy sums.

    They fill unwritten memory with other values, one with NaN: what depends on it may be anything. A call that does not run is left out,
    and the one in float64 without `wide`: it would draw other random numbers.
    """

    def noisy(seed: int, change: Change) -> Sequence[Sequence[Any]]:
        return call(snapshot(pristine, change), How(filling=float("nan") if seed == 1 else 3.0, indices=indices))

    exact: Sequence[Sequence[Any]] = ()
    if wide:
        # The border around a candidate: a graph that names its dtypes may not run in float64.
        with contextlib.suppress(Exception):
            exact = call(snapshot(pristine, wider), How(filling=3.0, wide=True, indices=indices))
    further, same, seen = noisy_runs(noisy, _NOISY_RUNS, coarsest)
    return [
        Runs(
            exact=exact[at] if exact else (),
            further=[sequence[at] for sequence in further],
            same=[item[at] for item in same],
            coarsest=seen.half,
            tf32=seen.tf32,
        )
        for at in range(parts)
    ]
