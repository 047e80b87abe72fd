"""What a failed guard is, and a guard's text cut into code, comment and hint."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from dynadiag.model.location import Location

_QUOTED = r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*\""""
_MARKS: dict[str, re.Pattern[str]] = {}


@dataclass(frozen=True, slots=True)
class FailedGuard:
    """One failed guard. `source` is readable (`x.size(0)`), `expected` what the cache entry was compiled for, `actual` what came instead.

    `text` is the reason as torch wrote it, less its stack; `entry` the compile id of the cache entry ("0/1"); `raw_source` Dynamo's name.
    """

    kind: str
    source: str
    expected: str | None
    actual: str | None
    text: str
    entry: str | None = None
    hint: str | None = None
    raw_source: str = ""
    stack: tuple[Location, ...] = ()
    origin: Location | None = None
    property: str = ""


@dataclass(frozen=True, slots=True)
class Parts:
    """The text of a reason cut up: the whole, its code, the comment behind it, torch's hint."""

    body: str
    code: str
    comment: str
    hint: str | None


def split(body: str) -> Parts:
    """Code, comment and hint. A `#` inside a quoted string does not begin a comment: keys and values of a guard are the user's text."""
    hint_at = body.rfind(" (HINT: ")
    hint = body[hint_at + 8 :].removesuffix(")") if hint_at >= 0 else None
    rest = body if hint_at < 0 else body[:hint_at]
    at = first_outside_quotes(rest, "  #")
    return Parts(body, (rest if at is None else rest[:at]).strip(), "" if at is None else rest[at:].strip(), hint)


def first_outside_quotes(text: str, mark: str) -> int | None:
    """Where `mark` first begins outside of quoted strings, or None; an opening quote without an end counts as text."""
    pattern = _MARKS.get(mark) or _MARKS.setdefault(mark, re.compile(rf"{_QUOTED}|({re.escape(mark)})", re.DOTALL))
    for match in pattern.finditer(text):
        if match[1] is not None:
            return match.start()
    return None


_CLASS = re.compile(r"<class '(?P<name>.+)'>")
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def type_name(text: str) -> str:
    """`float` for `<class 'float'>`; an address in an object's text is left out, because it differs from run to run."""
    if text == "a tensor type":
        return "Tensor"
    match = _CLASS.fullmatch(text.strip())
    if match and match["name"] == "code":
        return "function"
    name = match["name"] if match else _ADDRESS.sub("", text.strip())
    return name.rpartition(".")[2] if match else name


@lru_cache(maxsize=8192)
def type_of_literal(text: str) -> str | None:
    """`an int` for "2": how a type guard on such a value reads; None if the text is no literal of a simple type."""
    return next((name for pattern, name in _LITERALS if pattern.fullmatch(text)), None)


_LITERALS = (
    (re.compile(r"True|False"), "a bool"),
    (re.compile(r"-?\d+"), "an int"),
    (re.compile(r"-?(?:\d+\.\d*(?:e[-+]?\d+)?|\d+e[-+]?\d+|inf|nan)"), "a float"),
    (re.compile(r"(['\"]).*\1", re.DOTALL), "a str"),
)
