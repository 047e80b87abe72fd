"""One call of a graph and all that a caller could see of it afterwards."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from dynadiag.capture.reach import strided_copy
from dynadiag.compare.aliasing import sharing
from dynadiag.compare.judge import Seen
from dynadiag.torch_compat.dispatch.live_call import RandomState
from dynadiag.torch_compat.pytree import tree_leaves


@dataclass(frozen=True)
class Call:
    """All that was seen of one call, how outputs and inputs share memory (`aliasing.sharing`), and whether random numbers were drawn."""

    seen: tuple[Seen, ...]
    sharing: Mapping[tuple[int, int], str]
    random: bool


def call(function: Callable[..., Any], module: torch.nn.Module, inputs: Sequence[Any], names: Sequence[str], *, gradients: bool) -> Call:
    """Call it on these inputs with RNG state of its own; then the gradients of all that requires one, for fixed cotangents."""
    torch.manual_seed(0)
    generators = RandomState()
    needing = [(position, _origin(item)) for position, item in enumerate(inputs) if isinstance(item, torch.Tensor) and item.requires_grad]
    outputs = tree_leaves(function(*inputs))
    random = generators.moved()
    shared = sharing(outputs, inputs)
    seen = [Seen("output", at, f"output {at}", _kept(element)) for at, element in enumerate(outputs)]
    seen += [Seen("input", at, name, _kept(entry)) for at, (name, entry) in enumerate(zip(names, inputs, strict=True))]
    held = [*module.named_parameters(), *module.named_buffers()]
    seen += [Seen("attribute", at, name, _kept(tensor)) for at, (name, tensor) in enumerate(held)]
    if gradients and needing:
        found = _gradients(outputs, [one for _, one in needing])
        seen += [Seen("gradient", at, names[at], one) for (at, _), one in zip(needing, found, strict=True)]
    return Call(seen=tuple(seen), sharing=shared, random=random)


def _kept(value: Any) -> Any:
    """What the value is now: a copy that keeps sizes and strides."""
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return value
    return strided_copy(value).requires_grad_(value.requires_grad)


def _origin(value: torch.Tensor) -> Any:
    """Where its gradient goes: a tensor that is written in place is afterwards another one to autograd."""
    return value if value.is_leaf else torch.autograd.graph.get_gradient_edge(value)


def _gradients(outputs: Sequence[Any], needing: Sequence[Any]) -> list[torch.Tensor | None]:
    parts = [output for output in outputs if isinstance(output, torch.Tensor) and output.requires_grad and output.grad_fn is not None]
    if not parts:
        return [None] * len(needing)
    return list(torch.autograd.grad(parts, needing, [weights(part).to(part.dtype) for part in parts], allow_unused=True))


def gradients_of_loss(results: Any, wanted: Sequence[torch.Tensor]) -> list[torch.Tensor | None]:
    """The gradients of the sum of the results with slowly changing weights, computed in float64; None for each when no result needs one."""
    parts = [leaf for leaf in tree_leaves(results) if isinstance(leaf, torch.Tensor) and leaf.requires_grad and leaf.is_floating_point()]
    if not parts or not wanted:
        return [None] * len(wanted)
    loss = torch.stack([(part.double() * weights(part)).sum() for part in parts]).sum()
    return list(torch.autograd.grad(loss, wanted, allow_unused=True))


WEIGHTS = "1 + 0.5 * torch.cos(torch.arange({0}.numel(), device={0}.device, dtype=torch.float64)).reshape({0}.shape)"
"""What `weights` computes, for a written test or reproducer: the name of the tensor goes into the braces."""


def weights(part: torch.Tensor) -> torch.Tensor:
    """Cotangents in float64 between 0.5 and 1.5, different for neighbours, never random."""
    return 1 + 0.5 * torch.cos(torch.arange(part.numel(), device=part.device, dtype=torch.float64)).reshape(part.shape)
