"""JSON text that any reader takes: NaN and infinities, which JSON does not have, become null with the reason beside it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from dynadiag.masking import masked_text, may_hold_secret

_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False)
# A digest is no secret, and without it the entries of a long list are alike, so that the answer for one is remembered.
_FINGERPRINT = re.compile(r'"fingerprint": "[0-9a-f]{5}-[0-9a-f]{8}(?:-[0-9a-f]{6}){3}(?=["-])')
_CACHED_KEY = 64  # characters: the keys of a report are few and short, those that come from a log may be neither


def dumps(value: Any, *, indent: int | None = None, ensure_ascii: bool = True) -> str:
    """`value` as JSON. A float that is no number is null, and the innermost object around it says why: in its `unknown` where it has
    one, else in a key of that name with `_why` behind it.
    """
    if indent is None and not ensure_ascii:
        text = encoded(value, _ENCODER)
        if text is not None:
            return text
    return json.dumps(finite(value), indent=indent, ensure_ascii=ensure_ascii, allow_nan=False)


def encoded(value: Any, encoder: json.JSONEncoder) -> str | None:
    """`value` as JSON on one line; None where it needs more: a number that is none, a string that may hold a secret, an unknown type."""
    try:
        text = encoder.encode(value)
    except (TypeError, ValueError):
        return None
    # No sign of a secret has a character that JSON escapes: when the text of a whole entry has none, none of its strings has.
    return None if may_hold_secret(_FINGERPRINT.sub('"fingerprint": "', text)) else text


def finite(value: Any) -> Any:
    """The same plain data, without floats that are no numbers and what looks like a secret."""
    return _cleaned(value)[0]


def _cleaned(value: Any) -> tuple[Any, str | None]:
    """The value, and what had to be replaced in it and is not yet explained."""
    kind = type(value)
    if kind is str:
        return masked_text(value), None
    if value is None or kind is int or kind is bool:
        return value, None
    if isinstance(value, float) and not math.isfinite(value):
        return None, "it is not a number (NaN)" if math.isnan(value) else "it is infinite"
    if isinstance(value, Mapping):
        return _object(value), None
    if isinstance(value, list | tuple):
        items = [_cleaned(item) for item in value]
        why = next((why for _, why in items if why is not None), None)
        return [item for item, _ in items], why
    return (masked_text(value) if isinstance(value, str) else value), None


def _object(value: Mapping[Any, Any]) -> dict[Any, Any]:
    cleaned = {_key(key) if isinstance(key, str) else key: _cleaned(item) for key, item in value.items()}
    result: dict[Any, Any] = {key: item for key, (item, _) in cleaned.items()}
    reasons = {key: why for key, (_, why) in cleaned.items() if why is not None}
    if reasons and isinstance(result.get("unknown"), dict):
        result["unknown"] = {**reasons, **result["unknown"]}
    elif reasons:
        result.update({f"{key}_why": why for key, why in reasons.items() if result.get(f"{key}_why") is None})
    return result


def _key(key: str) -> str:
    return _known_key(key) if len(key) <= _CACHED_KEY else masked_text(key)


_known_key = lru_cache(maxsize=2048)(masked_text)
