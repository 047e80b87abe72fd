"""One ATen graph, compiled with its values visible: the first operator that leaves eager, those that are faults, how errors grow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from torch.fx import Node

from dynadiag.numerics.aten_graphs import AtenGraph
from dynadiag.numerics.distance import all_same_bits, finite_pair, relative, rms
from dynadiag.numerics.exposure import exposing, operators_of, results_of
from dynadiag.numerics.operators import Judgement, StoredValues, judge_operator
from dynadiag.numerics.reference import reference_of
from dynadiag.reduce.graphs.candidate import Candidate, own_copy
from dynadiag.reduce.graphs.inputs import make_values
from dynadiag.reduce.graphs.observing import compiled, run_once, surroundings
from dynadiag.reduce.graphs.running import eager_values, in_float64
from dynadiag.torch_compat.dynamo.compiling import configured, loudly
from dynadiag.torch_compat.inductor.kernels import Kernel, is_operator, written_kernels

Configs = tuple[tuple[str, Any], ...]
NO_CACHES = ("inductor.force_disable_caches", True)
"""What a graph was compiled with is only in part in the keys of Inductor's caches."""
_GROWS = 2.0
_CANCELS = 0.1
_ADDING = frozenset(("add", "sub", "rsub", "sum", "mean"))


@dataclass(frozen=True, kw_only=True)
class Growth:
    """The operator at which the distance from eager grows most: from `before` to `after`, relative to the values. `cancels`: its result is
    much smaller than what it adds up.
    """

    node: Node
    before: float
    after: float
    cancels: bool


@dataclass(frozen=True, kw_only=True)
class Located:
    """What was found in one graph. `reproduced`: with its values visible it gives what it gave before, to the bit.

    `fusion` are the operators of the kernel in which the difference is, where it ended when values were stored; `ended_at` is the first
    whose storing ends it. `unjudged` counts the operators that could not be judged.
    """

    graph: AtenGraph
    judgements: tuple[Judgement, ...] = ()
    reproduced: bool = True
    growth: Growth | None = None
    kernels: tuple[Kernel, ...] = ()
    distances: Mapping[str, tuple[float | None, float | None, float | None]] = field(default_factory=dict)
    ended_at: Node | None = None
    fusion: tuple[str, ...] = ()
    unjudged: int = 0

    @property
    def first(self) -> Judgement | None:
        """The first operator that is not equal to the bit on its own inputs."""
        return next((judgement for judgement in self.judgements if not judgement.equal), None)

    @property
    def fault(self) -> Judgement | None:
        """The first that is off by more than rounding explains."""
        return next((judgement for judgement in self.judgements if judgement.fault is not None), None)

    def kernel_of(self, node: Node) -> Kernel | None:
        """The kernel that computes an operator."""
        return next((kernel for kernel in self.kernels if node.name in kernel.nodes), None)


def run_compiled(candidate: Candidate, setting: Any, configs: Configs, around: AbstractContextManager[Any] | None = None) -> list[Any]:
    """The results of a candidate as its setting compiles it, under these options."""
    with configured((*configs, NO_CACHES)), loudly(), around or nullcontext():
        return run_once(candidate, setting, compiled(own_copy(candidate.module), setting))


def locate(graph: AtenGraph, configs: Configs) -> Located | None:
    """Where the compiled graph leaves eager; None where its results are equal to the bit."""
    with surroundings(graph.setting):
        return _located(graph, configs)


def _located(graph: AtenGraph, configs: Configs) -> Located | None:
    candidate, setting = graph.candidate, graph.setting
    reference = reference_of(candidate, setting)
    plain = run_compiled(candidate, setting, configs)
    if all_same_bits(plain, reference.eager):
        return None
    values = eager_values(candidate, grad=False)
    operators = operators_of(candidate, values)
    found, shown = _exposed(graph, configs, operators, values)
    reproduced = all_same_bits(shown, plain)
    result = _described(graph, found, operators, values, reproduced=reproduced)
    if result.fault is None and not reproduced and reference.outcome(plain) == "different":
        return _in_fusion(graph, configs, operators, values, plain) or result
    return result


@dataclass(frozen=True)
class _Visible:
    stored: StoredValues
    kernels: tuple[Kernel, ...]


def _exposed(graph: AtenGraph, configs: Configs, operators: Sequence[Node], values: Mapping[str, Any]) -> tuple[_Visible, list[Any]]:
    """What the graph stores of these operators, compiled with them as outputs; and its own results."""
    nodes = [result for node in operators for result in results_of(node, values)]
    candidate = exposing(graph.candidate, nodes)
    with written_kernels() as kernels:
        results = run_compiled(candidate, graph.setting, configs)
    count = len(results) - len(nodes)
    placeholders = [node.name for node in candidate.module.graph.nodes if node.op == "placeholder"]
    known = dict(zip(placeholders, make_values(candidate.inputs), strict=True))
    known |= {node.name: value for node, value in zip(nodes, results[count:], strict=True)}
    return _Visible(StoredValues(graph.candidate.module, known), tuple(kernels)), results[:count]


def _described(graph: AtenGraph, found: _Visible, operators: Sequence[Node], values: Mapping[str, Any], *, reproduced: bool) -> Located:
    judged = [judge_operator(node, results_of(node, values), found.stored) for node in operators]
    exact = _exact_values(graph.candidate)
    distances = {}
    for node in operators:
        (first, *_) = results_of(node, values)
        compiled_value, eager = found.stored.of(first), values[first.name]
        truth = exact.get(first.name)
        distances[node.name] = (relative(compiled_value, eager), relative(compiled_value, truth), relative(eager, truth))
    return Located(
        graph=graph,
        judgements=tuple(judgement for judgement in judged if judgement is not None),
        reproduced=reproduced,
        growth=_growth(operators, distances, values, found.stored),
        kernels=found.kernels,
        distances=distances,
        unjudged=sum(judgement is None for judgement in judged),
    )


def _exact_values(candidate: Candidate) -> Mapping[str, Any]:
    try:
        return eager_values(in_float64(candidate), grad=False)
    except Exception:  # noqa: BLE001 - the border around a candidate: a graph may insist on a dtype
        return {}


def _growth(
    operators: Sequence[Node], distances: Mapping[str, tuple[float | None, ...]], values: Mapping[str, Any], stored: StoredValues
) -> Growth | None:
    largest: Growth | None = None
    for node in operators:
        after = distances[node.name][0]
        pairs = [(stored.of(given), values.get(given.name)) for given in node.all_input_nodes]
        before = max((off for pair in pairs if (off := relative(*pair)) is not None), default=0.0)
        if not after or not before or after < _GROWS * before:
            continue
        if largest is None or after / before > largest.after / largest.before:
            sizes = [
                rms(pair[1]) for given in node.all_input_nodes if (pair := finite_pair(values.get(given.name), values.get(given.name)))
            ]
            (first, *_) = results_of(node, values)
            made = finite_pair(values[first.name], values[first.name])
            target: Any = node.target
            adds = target.overloadpacket.__name__ in _ADDING
            cancels = adds and made is not None and bool(sizes) and rms(made[1]) < _CANCELS * max(sizes)
            largest = Growth(node=node, before=before, after=after, cancels=cancels)
    return largest


def _in_fusion(
    graph: AtenGraph, configs: Configs, operators: Sequence[Node], values: Mapping[str, Any], plain: Sequence[Any]
) -> Located | None:
    """Where storing the values ends the difference: the first operator whose storing does, of those in their order, by halves."""

    def keeps(count: int) -> bool:
        _, results = _exposed(graph, configs, operators[:count], values)
        return all_same_bits(results, plain)

    low, high = 0, len(operators)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if keeps(middle) else (low, middle)
    with written_kernels() as kernels:
        run_compiled(graph.candidate, graph.setting, configs)
    last = operators[high - 1]
    kernel = next((kernel for kernel in kernels if last.name in kernel.nodes), None)
    names = tuple(node.name for node in operators if kernel is not None and node.name in kernel.nodes)
    found, _ = _exposed(graph, configs, operators[:low], values)
    before = _described(graph, found, operators[:low], values, reproduced=True)
    return Located(
        graph=graph,
        judgements=before.judgements,
        reproduced=True,
        growth=None,
        kernels=tuple(kernels),
        distances=before.distances,
        ended_at=last,
        fusion=names or (last.name,),
        unjudged=before.unjudged,
    )


def rejudged(
    located: Located, node: Node, configs: Configs, around: Callable[[], AbstractContextManager[Any]] = nullcontext
) -> Judgement | None:
    """One operator judged again under other options."""
    graph = located.graph
    with surroundings(graph.setting), around():
        values = eager_values(graph.candidate, grad=False)
        found, _ = _exposed(graph, configs, operators_of(graph.candidate, values), values)
        return judge_operator(node, results_of(node, values), found.stored)


def operator_name(node: Node) -> str:
    """An operator as torch calls it: aten.exp."""
    target: Any = node.target
    return str(target.overloadpacket) if is_operator(target) else str(target)
