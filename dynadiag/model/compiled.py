"""What a page shows of single compilations: texts that stay in the log, timed phases, facts about symbolic shapes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from dynadiag.model.location import Location, PayloadRef


@dataclass(frozen=True, slots=True)
class Listing:
    """A long text of a compilation: Inductor's output code (ids `o#`), or the tree of its guards as torch printed it (`t#`)."""

    id: str
    kind: Literal["output_code", "guards"]
    frame: str
    attempt: int
    text: PayloadRef


class Span(NamedTuple):
    """One phase of torch's `dynamo_timed`: when it began (microseconds of the process's clock since 1970), and how deep it lies."""

    process: int
    frame: str | None
    name: str
    began_us: float
    took_us: float
    depth: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeFact:
    """What a compilation decided about symbolic shapes, with the user stack that torch recorded for it (() where it has none).

    `specialized`: `text` is the symbol, `value` the constant that it became, `why` torch's reason; `guard`: `text` is the condition;
    `unbacked`: `text` is a symbol that depends on data, `value` its range.
    """

    kind: Literal["specialized", "guard", "unbacked"]
    frame: str
    attempt: int
    text: str
    sources: tuple[str, ...] = ()
    value: str | None = None
    why: str | None = None
    stack: tuple[Location, ...] = ()
