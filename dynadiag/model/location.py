"""A place in source text, which everything that was recorded and everything that is said of it points to."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Location:
    """A place in source text. `code` is the source line as recorded (stripped), never read later from disk by a pass."""

    file: str
    line: int | None = None
    function: str | None = None
    code: str | None = None
