"""Each operator judged on its own: eager and float64 get the inputs that the compiled graph stored, so no error is blamed that came in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node
from torch.fx.node import map_arg

from dynadiag.compare.aliasing import Change
from dynadiag.compare.judge import MINIFY, Noise, Runs, Seen, judge
from dynadiag.compare.noise import noisy_runs, wider, wider_dtype
from dynadiag.numerics.distance import finite_pair, rms, same_bits
from dynadiag.torch_compat.inductor.kernels import is_decomposed, is_random
from dynadiag.torch_compat.pytree import tree_map_only

MOST_ROUNDINGS = 6.0
"""An operator that is farther from float64 than this many times what eager's rounding explains is a fault.

Right programs reach 0.9, an epsilon of a layer norm that is ten times too large 11 (docs/numerics.md)."""
_NOISY = 3


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """How one operator's compiled values compare with eager's on the same inputs.

    `error` is its distance from float64, `rounding` what eager's rounding explains, both over the size of the values; None without float64.
    `fault` says in words what is more than rounding.
    """

    node: Node
    equal: bool
    error: float | None = None
    rounding: float | None = None
    fault: str | None = None


class StoredValues:
    """What the compiled graph stored: inputs, and the nodes that were made visible. Other values are computed from these, by eager."""

    def __init__(self, module: torch.fx.GraphModule, known: Mapping[str, Any]) -> None:
        self._module = module
        self._known = dict(known)

    def of(self, node: Node) -> Any:
        """The value of a node."""
        if node.name not in self._known:
            self._known[node.name] = _attribute(self._module, node) if node.op == "get_attr" else self.computed(node)
        return self._known[node.name]

    def computed(self, node: Node, change: Change | None = None, *, wide: bool = False) -> Any:
        """What eager computes for a node from its stored inputs; `change` makes others of them, `wide` computes in float64."""
        args, kwargs = map_arg((node.args, node.kwargs), self.of)
        if wide:
            args, kwargs = tree_map_only(torch.dtype, wider_dtype, tree_map_only(torch.Tensor, wider, (args, kwargs)))
        if change is not None:
            args, kwargs = tree_map_only(torch.Tensor, change, (args, kwargs))
        target: Any = node.target
        return target(*args, **kwargs)


def judge_operator(node: Node, results: Sequence[Node], stored: StoredValues) -> Judgement | None:
    """None where it cannot be judged alone: it draws random numbers, or does not run on what was stored."""
    if is_random(node.target):
        return None
    try:
        eager = _taken(stored.computed(node), results)
    except Exception:  # noqa: BLE001 - the border around a candidate: its operator runs here
        return None
    compiled = [_as_stored(stored.of(result), value, result) for result, value in zip(results, eager, strict=True)]
    if all(map(same_bits, eager, compiled)):
        return Judgement(node=node, equal=True)
    exact = _exact(node, results, stored)
    off = _NOISY if _is_hidden(node, [*eager, *(stored.of(given) for given in node.all_input_nodes)]) else 0

    def run(seed: int, change: Change) -> list[Any]:
        # What a kernel keeps is off by less than the distance of two numbers of the dtype, so such values have to stay wide.
        wide = bool(exact) and 0 < seed <= off
        return [
            value.to(known.dtype) for value, known in zip(_taken(stored.computed(node, change, wide=wide), results), eager, strict=True)
        ]

    further, same, seen = noisy_runs(run, off)
    noise = Noise(exact=exact, runs=lambda _: Runs(further=further, same=same, coarsest=seen.half, tf32=seen.tf32))
    found = [
        judged.differences[0].detail or judged.differences[0].kind
        for judged in judge([Seen("output", at, node.name, value) for at, value in enumerate(eager)], compiled, noise, MINIFY)
        if judged.differences
    ]
    measured = [
        _measured(*three, [run[at] for run in (*further, *same)]) for at, three in enumerate(zip(eager, compiled, exact, strict=False))
    ]
    known = [pair for pair in measured if pair is not None]
    error, rounding = max(known, key=lambda pair: pair[0] / pair[1], default=(None, None))
    fault = found[0] if found else None
    if fault is None and error is not None and rounding is not None and error > MOST_ROUNDINGS * rounding:
        fault = f"off by {error:.1e} of its size, rounding explains {rounding:.1e}"
    return Judgement(node=node, equal=False, error=error, rounding=rounding, fault=fault)


def _as_stored(value: Any, eager: Any, node: Node) -> Any:
    """A compiled value in eager's dtype.

    Between two operators a compiler may keep another one: Inductor of torch 2.11 drops a cast to bfloat16 that is followed by one back.
    What a narrower one loses is measured like any error. What the graph returns has to have eager's.
    """
    tensors = isinstance(value, torch.Tensor) and isinstance(eager, torch.Tensor)
    if not tensors or not (value.is_floating_point() and eager.is_floating_point()) or any(user.op == "output" for user in node.users):
        return value
    return value.to(eager.dtype)


def _is_hidden(node: Node, values: Sequence[Any]) -> bool:
    """Whether a kernel may have computed with other values than those it stored.

    Half precision is kept in float32, a GPU contracts products with sums, and what is decomposed rounds in between. C++ code for float32
    computes with what it stores.
    """
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    wide = (torch.float32, torch.float64)
    return is_decomposed(node.target) or any(
        value.device.type != "cpu" or (value.is_floating_point() and value.dtype not in wide) for value in tensors
    )


def _exact(node: Node, results: Sequence[Node], stored: StoredValues) -> list[Any]:
    try:
        return _taken(stored.computed(node, wide=True), results)
    except Exception:  # noqa: BLE001 - the border around a candidate: an operator may insist on its dtype
        return []


def _measured(eager: Any, compiled: Any, exact: Any, noisy: Sequence[Any]) -> tuple[float, float] | None:
    """How far the compiled value is from float64, and how far eager's rounding may be, over the size of the values."""
    both = finite_pair(compiled, exact)
    if both is None or not (size := rms(both[1])):
        return None
    pairs = (finite_pair(eager, exact), *(finite_pair(run, eager) for run in noisy))
    # A result that is rounded once is off by 0.29 of the distance of two numbers on average, by half of it at most.
    usual = max([torch.finfo(eager.dtype).eps / 2 * size, *(rms(pair[0] - pair[1]) for pair in pairs if pair is not None)])
    return rms(both[0] - both[1]) / size, usual / size


def _taken(result: Any, results: Sequence[Node]) -> list[Any]:
    if isinstance(result, torch.Tensor):
        return [result]
    taken: list[Any] = [node.args[1] for node in results]
    return [result[at] for at in taken]


def _attribute(module: torch.fx.GraphModule, node: Node) -> Any:
    value: Any = module
    for part in str(node.target).split("."):
        value = getattr(value, part)
    return value
