"""Values out of JSON that strangers wrote: parsed without a traceback, and taken only when they have the right type."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

# A Python name in an expression, as a regular expression; the `e` of `1e-05`, the `x1f` of `0x1f` and an attribute after a dot are none.
NAME = r"(?<![\w.])[A-Za-z_]\w*"
_LARGEST_INT = 2**63 - 1
_DEEPEST = 50
# What a JSON text may hold, so that a few bytes of text do not become hundreds of MB of objects.
_MOST_CONTAINERS = 1_000_000
_MOST_VALUES = 3_000_000
_SMALL = 1_000_000
_DECODER = json.JSONDecoder()
_LONE_SURROGATE = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}(?:\\u[dD][c-fC-F][0-9a-fA-F]{2})?|\\u[dD][c-fC-F][0-9a-fA-F]{2}")


class BadRecordError(ValueError):
    """A record that cannot be used; `reason` is what it is counted under in `Process.skipped`."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def parse_json(text: str, reason: str) -> Any:
    """The value of a JSON text; BadRecordError(reason) for bad syntax, too deep nesting and numbers beyond Python's digit limit."""
    if len(text) > _SMALL and (text.count("{") + text.count("[") > _MOST_CONTAINERS or text.count(",") > _MOST_VALUES):
        raise BadRecordError(f"{reason.removesuffix(' is not JSON')} contains too many values")
    if "\\ud" in text or "\\uD" in text:
        text = _LONE_SURROGATE.sub(_replace_lone, text)
    try:
        if text[:1] == "{" and text[-1] == "}":  # no blanks around it: nearly all
            value, end = _DECODER.raw_decode(text)
            if end == len(text):
                return value
        return _DECODER.decode(text)
    except (ValueError, RecursionError):
        raise BadRecordError(reason) from None


def _replace_lone(match: re.Match[str]) -> str:
    """A surrogate pair stays; half of one could not be written as UTF-8 later."""
    return match.group() if len(match.group()) == 12 else "\\ufffd"


def decode(data: bytes) -> str:
    """Text of bytes that should be UTF-8; what is not becomes U+FFFD."""
    return data.decode("utf-8", "replace")


def as_dict(value: object) -> Mapping[str, Any]:
    """The value if it is a JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}


def as_list(value: object) -> list[Any]:
    """The value if it is a JSON array, else an empty one."""
    return value if isinstance(value, list) else []


def as_text(value: object) -> str | None:
    """The value if it is a string, else None."""
    return value if isinstance(value, str) else None


def as_int(value: object) -> int | None:
    """The value if it is an integer that fits 64 bits (a bool is none), else None."""
    return value if type(value) is int and -_LARGEST_INT <= value <= _LARGEST_INT else None


def as_id(value: object) -> int | None:
    """The value if it can be one of torch's counters (not negative), else None."""
    return value if type(value) is int and 0 <= value <= _LARGEST_INT else None


def as_float(value: object) -> float | None:
    """The value if it is a finite number, else None."""
    if type(value) is not float:
        if type(value) is not int:
            return None
        try:
            value = float(value)
        except OverflowError:
            return None
    return value if math.isfinite(value) else None


def as_bool(value: object) -> bool | None:
    """The value if it is a bool, else None."""
    return value if isinstance(value, bool) else None


def shallow(value: Any) -> Any:
    """A value out of JSON; BadRecordError when it is nested too deep to be walked through and written again."""
    level = [value]
    for _ in range(_DEEPEST):
        level = [inner for item in level for inner in (item.values() if isinstance(item, dict) else item if isinstance(item, list) else ())]
        if not level:
            return value
    raise BadRecordError("nested too deep")


def as_texts(value: object) -> tuple[str, ...]:
    """The strings in a JSON array; other elements are left out."""
    return tuple(item for item in as_list(value) if isinstance(item, str))
