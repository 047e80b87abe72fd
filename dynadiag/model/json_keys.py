"""What dataclasses and typed dicts say of the JSON that is made of them, for the schemas in docs/: in `Annotated`, after the type.

A text describes the key. `Bounds` say which values it has. A type is what is written in place of the annotated one. Nothing of this is
looked at while a file is written: `docs/site/schemas.py` reads it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any


@dataclass(frozen=True)
class Bounds:
    """At least, more than, and at most; and the regular expression of a text."""

    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    pattern: str | None = None


Count = Annotated[int, Bounds(ge=0)]
Share = Annotated[float, Bounds(ge=0, le=1)]
NOT_WRITTEN = type("NotWritten", (), {})
"""Of a field that is no key."""

NO_REASON = type("NoReason", (), {})
"""Of a key that may be null without a reason, although there is a key for it."""


@dataclass(frozen=True)
class ReasonIn:
    """Of a key that has the reason why it is null in another key than `<name>_why`."""

    key: str


@dataclass(frozen=True)
class WrittenAs:
    """The key of a field that has another name."""

    key: str


@dataclass(frozen=True)
class KeysOf:
    """An object with the keys of `classes`, in this order, and after them `<name>_why` for each of `reasons`: why that key is null.

    It is called `name`, else after the first class.
    """

    classes: tuple[Any, ...]
    reasons: tuple[str, ...] = ()
    name: str = ""
