"""Places: a line of source text, which everything recorded and everything said of it points to; and a payload in its log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated


@dataclass(frozen=True, slots=True)
class Location:
    """A place in source text. `code` is the source line as recorded (stripped), never read later from disk by a pass."""

    file: str
    line: Annotated[int | None, "1-based"] = None
    function: str | None = None
    code: Annotated[str | None, "the source line as recorded, stripped"] = None

    def is_same_line(self, other: Location | None) -> bool:
        """Whether both are one line of one file, whatever function and code are known of them."""
        return other is not None and (self.file, self.line) == (other.file, other.line)


@dataclass(frozen=True, slots=True)
class PayloadRef:
    """Where a record's payload lies in its log, so that long texts stay on disk until somebody wants one."""

    log: str
    offset: int
    length: int
