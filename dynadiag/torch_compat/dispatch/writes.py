"""Which storages an operator writes: from its schema, and from a short list of schemas that hide a write."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch._ops import HigherOrderOperator, OpOverload
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass

# Operators whose schema does not say that they write running statistics (native_functions.yaml, 2.11 and 2.15): the first three while
# training, the others (SyncBatchNorm's) always.
_STATISTICS = ("running_mean", "running_var")
_HIDDEN_WRITES = {
    "aten::native_batch_norm": _STATISTICS,
    "aten::cudnn_batch_norm": _STATISTICS,
    "aten::miopen_batch_norm": _STATISTICS,
    "aten::batch_norm_gather_stats": _STATISTICS,
    "aten::batch_norm_gather_stats_with_counts": _STATISTICS,
    "aten::batch_norm_update_stats": _STATISTICS,
    "inductor::resize_storage_bytes_": ("variable",),  # its schema declares no write
}
_TRAINING_ARGUMENTS = ("training", "train")
_STORAGE_WRITES = frozenset(
    {"aten::set_", "aten::resize_", "aten::resize_as_", "aten::shallow_copy_data_", "inductor::resize_storage_bytes_"}
)
# The argument that has as many elements as the operator writes, where that is less than the whole tensor.
_AS_MANY_AS = {
    "aten::index_copy_": "source",
    "aten::index_add_": "source",
    "aten::index_reduce_": "source",
    "aten::scatter_": "index",
    "aten::scatter_add_": "index",
    "aten::scatter_reduce_": "index",
    "aten::put_": "index",
}
_VALUES_DECIDE = frozenset({"aten::masked_fill_", "aten::masked_scatter_"})
WriteKind = Literal["data", "metadata", "storage"]
if TYPE_CHECKING:  # torch 2.6: an OpOverload is not subscriptable
    Report = Callable[[OpOverload[..., Any], str, torch.Tensor, int | None], None]


class WriteWatch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While active, calls `report(op, argument name, tensor, elements)` for every tensor argument that a dispatched operator writes."""

    supports_higher_order_operators = True

    def __init__(self, report: Report) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._report = report
        self._written: dict[OpOverload[..., Any], tuple[tuple[int, str], ...]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if isinstance(func, OpOverload):
            written = self._written.get(func)
            if written is None:
                written = self._written[func] = declared_writes(func._schema)
            if written:
                bound = _bound(func, args, kwargs)
                for _, name in written:
                    self._tell(func, name, bound.get(name), bound)
            elif func._schema.name in _HIDDEN_WRITES:
                self._hidden(func, _bound(func, args, kwargs))
        return func(*args, **kwargs)

    def _tell(self, func: OpOverload[..., Any], name: str, value: Any, bound: Mapping[str, Any]) -> None:
        for tensor in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(tensor, torch.Tensor):
                self._report(func, name, tensor, written_elements(func, tensor, bound))

    def _hidden(self, func: OpOverload[..., Any], bound: Mapping[str, Any]) -> None:
        always = not any(name in bound for name in _TRAINING_ARGUMENTS)
        if always or any(bound.get(name) for name in _TRAINING_ARGUMENTS):
            for name in _HIDDEN_WRITES[func._schema.name]:
                self._tell(func, name, bound.get(name), bound)


def _bound(func: OpOverload[..., Any], args: Any, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    names = [argument.name for argument in func._schema.arguments]
    return dict(zip(names, args)) | dict(kwargs)


def declared_writes(schema: Any) -> tuple[tuple[int, str], ...]:
    """Position and name of each argument that a schema says is written."""
    arguments = enumerate(schema.arguments)
    return tuple((i, argument.name) for i, argument in arguments if argument.alias_info is not None and argument.alias_info.is_write)


def returned_arguments(schema: Any) -> tuple[str | None, ...]:
    """For each result of a schema, the argument that it aliases; None for a fresh one."""
    owners = {name: argument.name for argument in schema.arguments if argument.alias_info for name in argument.alias_info.before_set}
    return tuple(
        next((owners[name] for name in result.alias_info.before_set if name in owners), None) if result.alias_info else None
        for result in schema.returns
    )


def written_elements(func: OpOverload[..., Any], tensor: torch.Tensor, bound: Mapping[str, Any]) -> int | None:
    """How many elements of `tensor` the call writes at most; None when values decide or sizes are not known."""
    try:
        return _written_elements(func._schema.name, tensor, bound)
    except (RuntimeError, TypeError, ValueError, ArithmeticError):
        return None


def _written_elements(name: str, tensor: torch.Tensor, bound: Mapping[str, Any]) -> int | None:
    if name in _VALUES_DECIDE:
        return None
    whole = int(tensor.numel())
    if name in _AS_MANY_AS:
        other = bound.get(_AS_MANY_AS[name])
        return min(whole, int(other.numel())) if isinstance(other, torch.Tensor) else None
    if name == "aten::index_fill_":
        rows = tensor.shape[bound["dim"]] if tensor.dim() else 1
        return min(whole, whole // max(int(rows), 1) * int(bound["index"].numel()))
    if name in ("aten::index_put_", "aten::_index_put_impl_"):
        return _indexed(tensor, list(bound["indices"]))
    return whole


def _indexed(tensor: torch.Tensor, indices: list[torch.Tensor | None]) -> int | None:
    """Elements that `tensor[indices] = ...` writes at most; which ones a mask selects is a matter of values."""
    given = [index for index in indices if index is not None]
    if any(index.dtype in (torch.bool, torch.uint8) for index in given):
        return None
    free = [size for size, index in zip(tensor.shape, indices) if index is None] + list(tensor.shape[len(indices) :])
    picked = math.prod(torch.broadcast_shapes(*(index.shape for index in given)))  # type: ignore[no-untyped-call]
    return min(int(tensor.numel()), int(picked * math.prod(free)))


def write_kind(func: OpOverload[..., Any]) -> WriteKind:
    """What the operator changes: values, the memory under a tensor (`set_`, `resize_`), or sizes and strides (`t_`, `unsqueeze_`)."""
    if func._schema.name in _STORAGE_WRITES:
        return "storage"
    return "metadata" if torch.Tag.inplace_view in func.tags else "data"


def storages(tensor: torch.Tensor) -> Iterator[int]:
    """The identities of the memory under a tensor: one for a plain tensor, one for each inner tensor of a wrapper subclass."""
    if is_traceable_wrapper_subclass(tensor):
        for name in tensor.__tensor_flatten__()[0]:
            yield from storages(getattr(tensor, name))
        return
    try:
        yield tensor.untyped_storage()._cdata
    except (RuntimeError, NotImplementedError):
        yield -id(tensor)


def storage_bytes(tensor: torch.Tensor) -> int | None:
    """The size of the memory under a plain tensor, in bytes."""
    try:
        return int(tensor.untyped_storage().nbytes())
    except (RuntimeError, NotImplementedError, TypeError):
        return None


def is_higher_order(target: object) -> bool:
    """Whether a node's target runs sub graphs."""
    return isinstance(target, HigherOrderOperator)


def operator_name(target: Any) -> str:
    """The name of a higher order operator: `wrap_with_set_grad_enabled`."""
    return str(getattr(target, "_name", "") or getattr(target, "__name__", ""))


def declared_schema(target: Any) -> Any:
    """The schema of an operator or of what stands in for one, of a packet its default's; None for other functions."""
    schema = getattr(target, "_schema", None)
    if schema is None and getattr(target, "overloads", None) is not None:
        return getattr(getattr(target, "default", None), "_schema", None)
    return schema


def parse_schema(text: str) -> Any:
    """The schema of an operator as torch's own object; None when the text is none."""
    try:
        return torch._C.parse_schema(text)
    except RuntimeError:
        return None
