"""The code of a recompile, by what had changed."""

from __future__ import annotations

LIMIT_CODE = "DR01"
_CODES = {
    "size": "DR02",
    "value": "DR03",
    "none": "DR03",
    "nan": "DR03",
    "type": "DR03",
    "module": "DR03",
    "function": "DR04",
    "identity": "DR04",
    "dtype": "DR05",
    "device": "DR05",
    "stride": "DR05",
    "rank": "DR05",
    "requires_grad": "DR05",
    "dispatch_keys": "DR05",
    "global_state": "DR06",
    "function_mode": "DR06",
    "length": "DR07",
    "keys": "DR07",
    "contains": "DR07",
    "attribute": "DR07",
    "backend": "DR08",
    "condition": "DR09",
    "zero_one": "DR09",
    "duck_size": "DR09",
    "aliasing": "DR10",
    "invalidated": "DR11",
    "dim_marking": "DR12",
}
_UNKNOWN_CODE = "DR99"


def recompile_code(kind: str | None) -> str:
    """The `DR…` code of a kind of change; None when no change could be read."""
    return _UNKNOWN_CODE if kind is None else _CODES.get(kind, _UNKNOWN_CODE)
