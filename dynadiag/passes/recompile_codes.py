"""The code of a recompile, by what had changed."""

from __future__ import annotations

from dynadiag.model import codes

_CODES = {
    "size": codes.SIZE,
    "value": codes.VALUE_OR_TYPE,
    "none": codes.VALUE_OR_TYPE,
    "nan": codes.VALUE_OR_TYPE,
    "type": codes.VALUE_OR_TYPE,
    "module": codes.VALUE_OR_TYPE,
    "function": codes.IDENTITY,
    "identity": codes.IDENTITY,
    "dtype": codes.TENSOR_PROPERTY,
    "device": codes.TENSOR_PROPERTY,
    "stride": codes.TENSOR_PROPERTY,
    "rank": codes.TENSOR_PROPERTY,
    "requires_grad": codes.TENSOR_PROPERTY,
    "dispatch_keys": codes.TENSOR_PROPERTY,
    "global_state": codes.GLOBAL_STATE,
    "function_mode": codes.GLOBAL_STATE,
    "length": codes.CONTAINER,
    "keys": codes.CONTAINER,
    "contains": codes.CONTAINER,
    "attribute": codes.CONTAINER,
    "backend": codes.BACKEND,
    "condition": codes.CONDITION,
    "zero_one": codes.CONDITION,
    "duck_size": codes.CONDITION,
    "aliasing": codes.SAME_TENSOR,
    "invalidated": codes.FREED_OBJECT,
    "dim_marking": codes.DIM_MARKING,
}


def recompile_code(kind: str | None) -> str:
    """The `DR…` code of a kind of change; None when no change could be read."""
    return codes.UNKNOWN_REASON if kind is None else _CODES.get(kind, codes.UNKNOWN_REASON)
