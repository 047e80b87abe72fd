"""Values as `torch.save` takes them: it refuses tensors of several dtypes in one memory.

Such tensors are kept as the bytes of their memory and how they lie in it (torch/serialization.py `persistent_id`, 2.11 to 2.15).
`torch` is a parameter: this is imported where torch is not yet.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

_BYTES = "dynadiag_bytes"


def to_saved(torch: Any, value: Any) -> Any:
    """The value, in which tuples, lists and dicts may stand, with such tensors replaced."""
    dtypes: dict[int, set[Any]] = {}
    for tensor in _tensors(torch, value):
        dtypes.setdefault(_place(tensor), set()).add(tensor.dtype)
    mixed = {place for place, found in dtypes.items() if place and len(found) > 1}
    return _mapped(value, lambda one: _as_bytes(torch, one) if isinstance(one, torch.Tensor) and _place(one) in mixed else one)


def from_saved(torch: Any, value: Any) -> Any:
    """What `to_saved` was given; tensors in one memory lie in one memory again."""
    if isinstance(value, dict) and _BYTES in value:
        return _from_bytes(torch, value)
    if isinstance(value, dict):
        return {name: from_saved(torch, one) for name, one in value.items()}
    return type(value)(from_saved(torch, one) for one in value) if type(value) in (tuple, list) else value


def _mapped(value: Any, change: Any) -> Any:
    if isinstance(value, dict):
        return {name: _mapped(one, change) for name, one in value.items()}
    return type(value)(_mapped(one, change) for one in value) if type(value) in (tuple, list) else change(value)


def _tensors(torch: Any, value: Any) -> Iterator[Any]:
    if isinstance(value, torch.Tensor):
        yield value
    for one in value.values() if isinstance(value, dict) else value if isinstance(value, (tuple, list)) else ():
        yield from _tensors(torch, one)


def _place(tensor: Any) -> int:
    """0 where it has no memory that others could share."""
    with contextlib.suppress(RuntimeError, NotImplementedError):
        return 0 if tensor.device.type == "meta" else int(tensor.untyped_storage().data_ptr())
    return 0


def _as_bytes(torch: Any, tensor: Any) -> dict[str, Any]:
    return {
        _BYTES: torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage()),
        "dtype": tensor.dtype,
        "layout": (int(tensor.storage_offset()), tuple(map(int, tensor.shape)), tuple(map(int, tensor.stride()))),
        "conj": bool(tensor.is_conj()),
        "neg": bool(tensor.is_neg()),
    }


def _from_bytes(torch: Any, saved: Mapping[str, Any]) -> Any:
    memory = saved[_BYTES]
    made = torch.empty(0, dtype=saved["dtype"], device=memory.device).set_(memory.untyped_storage(), *saved["layout"])
    made = made.conj() if saved["conj"] else made
    return torch._neg_view(made) if saved["neg"] else made
