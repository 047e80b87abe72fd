"""How tensors share memory, and copies of them that share it in the same way."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

Relation = Literal["same tensor", "overlap", "one storage"]
AliasPattern = tuple[tuple[int, int, Relation], ...]
Change = Callable[[torch.Tensor], torch.Tensor]
_LARGE = 32


def is_plain(value: object) -> bool:
    """Whether it is a strided tensor that can be copied and compared: no subclass, not sparse, quantized, negated or without its memory."""
    if not isinstance(value, torch.Tensor):
        return False
    if type(value) not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer) or value.layout is not torch.strided:
        return False
    if value.device.type not in ("cpu", "cuda") or value.is_quantized or value.is_neg() or value.dtype is torch.complex32:
        return False
    return byte_range(value)[1] <= value.untyped_storage().nbytes()


def same_bits(tensor: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two plain tensors have the same size and the same values, NaN equal to NaN."""
    if tensor.shape != other.shape or tensor.dtype != other.dtype or tensor.device != other.device:
        return False
    tensor, other = tensor.detach(), other.detach()
    return bool(torch.equal(tensor, other) or ((tensor == other) | ((tensor != tensor) & (other != other))).all())


def byte_range(value: torch.Tensor) -> tuple[int, int]:
    """The first byte of its storage that the tensor covers and the one after its last; the same twice for an empty tensor."""
    start = int(value.storage_offset()) * value.element_size()
    if not value.numel():
        return start, start
    reach = 1 + sum((size - 1) * step for size, step in zip(value.shape, value.stride(), strict=True))
    return start, start + int(reach) * value.element_size()


def relation(tensor: torch.Tensor, other: torch.Tensor) -> Relation | None:
    """How two tensors share memory: one object, ranges of bytes that overlap, one storage without overlap; None if they do not."""
    if tensor is other:
        return "same tensor"
    if storage_key(tensor) != storage_key(other) or tensor.untyped_storage().nbytes() == 0:
        return None
    (start, end), (first, last) = byte_range(tensor), byte_range(other)
    return "overlap" if start < last and first < end else "one storage"


def overlaps_itself(value: torch.Tensor) -> bool:
    """Whether elements of an expanded tensor lie in one place: it cannot be written element by element."""
    return any(step == 0 and size > 1 for step, size in zip(value.stride(), value.shape, strict=True))


def alias_pattern(values: Sequence[object]) -> AliasPattern:
    """Which of the values share memory, as (position, position, how); other values than plain tensors are left out.

    Of more than 32 in one storage only those are told that overlap: views of one flat buffer would be too many pairs.
    """
    by_storage: dict[tuple[str, int], list[tuple[int, int, int]]] = {}
    for position, value in enumerate(values):
        if isinstance(value, torch.Tensor) and is_plain(value):
            by_storage.setdefault(storage_key(value), []).append((*byte_range(value), position))
    found: list[tuple[int, int, Relation]] = []
    for group in by_storage.values():
        for number, other in _pairs(sorted(group)):
            how = relation(values[number], values[other])  # type: ignore[arg-type]
            if how is not None:
                found.append((min(number, other), max(number, other), how))
    return tuple(sorted(found))


def sharing(outputs: Sequence[object], inputs: Sequence[object]) -> dict[tuple[int, int], str]:
    """How each output shares memory with other outputs and with inputs, which are numbered after the outputs.

    Parts of one storage that do not overlap are separate memory: a write to one cannot be seen through the other. Whether two tensors are
    one object is not asked either: what is written through one is seen through the other all the same.
    """
    values: list[Any] = [*outputs, *inputs]
    pattern = [(number, other) for number, other, how in alias_pattern(values) if number < len(outputs) and how != "one storage"]
    place = {at: (byte_range(values[at]), values[at].shape, values[at].stride()) for pair in pattern for at in pair}
    return {(item, other): "the same memory" if place[item] == place[other] else "overlapping memory" for item, other in pattern}


def _pairs(group: Sequence[tuple[int, int, int]]) -> Iterator[tuple[int, int]]:
    """Positions of all pairs of (start, end, position), sorted by start; of a large group only of those that overlap."""
    for number, (_, end, item) in enumerate(group):
        for start, _, other in group[number + 1 :]:
            if len(group) > _LARGE and start >= end:
                break
            yield item, other


def snapshot(values: Sequence[Any], change: Change | None = None) -> list[Any]:
    """Copies with the same values, sizes, strides and shared memory; other values than plain tensors as they are.

    A tensor that requires grad is copied as a leaf or, when it has a history, as one with a history of its own. `change` makes other
    values of all elements of one memory, in another dtype if it likes; where tensors of two dtypes share one it raises ValueError.
    """
    memories: dict[tuple[str, int], _Memory] = {}
    objects: dict[int, torch.Tensor] = {}
    for value in values:
        if isinstance(value, torch.Tensor) and is_plain(value) and id(value) not in objects:
            objects[id(value)] = _copy(value, memories, change)
    return [objects.get(id(value), value) if isinstance(value, torch.Tensor) else value for value in values]


def bytes_of(values: Sequence[object]) -> int:
    """The memory that a snapshot of the values takes."""
    storages = {
        storage_key(value): value.untyped_storage().nbytes() for value in values if isinstance(value, torch.Tensor) and is_plain(value)
    }
    return sum(storages.values())


def storage_key(value: torch.Tensor) -> tuple[str, int]:
    """Names the storage of a tensor: storages of no bytes have no address and are told apart by the tensor."""
    address = value.untyped_storage().data_ptr()
    return str(value.device), address or -id(value)


@dataclass(frozen=True)
class _Memory:
    """A copied storage: of which dtype the first tensor in it was, and of which its copy is."""

    storage: torch.UntypedStorage
    was: torch.dtype
    now: torch.dtype


def _memory(value: torch.Tensor, change: Change | None) -> _Memory:
    storage = value.untyped_storage().clone()  # type: ignore[no-untyped-call]
    if change is None:
        return _Memory(storage, value.dtype, value.dtype)
    count = storage.nbytes() // value.dtype.itemsize
    with torch.no_grad():
        changed = change(torch.empty(0, dtype=value.dtype, device=value.device).set_(storage, 0, (count,), (1,)))
    return _Memory(changed.untyped_storage(), value.dtype, changed.dtype)


def _copy(value: torch.Tensor, memories: dict[tuple[str, int], _Memory], change: Change | None) -> torch.Tensor:
    key = storage_key(value)
    if key not in memories:
        memories[key] = _memory(value, change)
    memory = memories[key]
    if change is not None and memory.was is not value.dtype:
        raise ValueError(f"{memory.was} and {value.dtype} share memory")
    dtype = value.dtype if change is None else memory.now
    with torch.no_grad():
        flat = torch.empty(0, dtype=dtype, device=value.device)
        copy = flat.set_(memory.storage, value.storage_offset(), value.shape, value.stride())
    if value.is_conj():
        copy = torch.conj(copy)
    if not value.requires_grad:
        return copy
    return copy.requires_grad_() if value.is_leaf else with_history(copy)


def with_history(value: torch.Tensor) -> torch.Tensor:
    """The tensor as if it had been computed: it requires grad and is no leaf."""
    with torch.enable_grad():
        joined: torch.Tensor = _WithHistory.apply(torch.zeros((), requires_grad=True), value)
    return joined


class _WithHistory(torch.autograd.Function):
    """The second tensor itself, as if it had been computed: it may be written in place where a leaf may not."""

    @staticmethod
    def forward(ctx: Any, leaf: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        ctx.mark_dirty(value)
        return value

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[None, torch.Tensor]:
        return None, gradient
