"""Fake inputs for the probe, each with memory of its own, so that a write is blamed on the input that it was made through."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from dynadiag.fx.inputs import InputSpec, contiguous_stride, elements, torch_dtype

_READ_VALUES = frozenset({"item", "_local_scalar_dense", "tolist", "bool", "int", "float", "__bool__", "__int__", "__float__", "__index__"})


def reads_values(module: GraphModule) -> bool:
    """Whether a graph or a sub graph turns a tensor into a Python number."""
    graphs = (part.graph for part in module.modules() if isinstance(part, GraphModule))
    names = (
        node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "") for graph in graphs for node in graph.nodes
    )
    return any(name.partition(".")[0] in _READ_VALUES for name in names)


def fake_from_spec(spec: InputSpec, *, with_value: bool = False) -> Any:
    """The input as a fake tensor (call it under a fake mode); numbers as they are.

    `with_value` gives a scalar tensor a value that a fake mode keeps, at some cost, so that `.item()` of it is a number.
    """
    if spec.kind == "rng_state":
        return torch.get_rng_state()
    if spec.kind != "tensor" or spec.shape is None:
        return spec.value
    stride = spec.stride if spec.stride is not None else contiguous_stride(spec.shape)
    if with_value and not spec.shape and not spec.requires_grad and not spec.offset:
        return torch.tensor(1, dtype=torch_dtype(spec), device=spec.device)
    made = strided(spec.shape, stride, spec.offset, torch_dtype(spec), spec.device or "cpu")
    if spec.requires_grad and (made.is_floating_point() or made.is_complex()):
        made.requires_grad_()
        if not spec.leaf:
            made = made.clone(memory_format=torch.preserve_format)
    return made


def strided(shape: Sequence[int], stride: Sequence[int], offset: int, dtype: torch.dtype, device: Any) -> torch.Tensor:
    """A tensor of this layout; its values are whatever the memory held."""
    if not offset:
        return torch.empty_strided(shape, stride, dtype=dtype, device=device)
    reach = 0 if 0 in shape else 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))
    with torch.no_grad():
        made = torch.empty(0, dtype=dtype, device=device)
        return made.set_(torch.empty(reach + offset, dtype=dtype, device=device).untyped_storage(), offset, shape, stride)


def aliases_of(specs: Sequence[InputSpec], index: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of the inputs on the same storage as input `index`, and of those of them whose bytes overlap its bytes."""
    own = specs[index]
    if own.storage is None or own.kind != "tensor":
        return (), ()
    same = [spec for i, spec in enumerate(specs) if i != index and spec.kind == "tensor" and spec.storage == own.storage]
    first, last = _bytes(own)
    overlapping = [spec.name for spec in same if _bytes(spec)[0] < last and first < _bytes(spec)[1]]
    return tuple(spec.name for spec in same), tuple(overlapping)


def _bytes(spec: InputSpec) -> tuple[int, int]:
    size = torch_dtype(spec).itemsize
    return spec.offset * size, (spec.offset + elements(spec)) * size
