"""One record of a difference between eager and a compiled call, and its vocabulary."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from dynadiag.model.location import Location

Kind = Literal[
    "value",
    "shape",
    "stride",
    "dtype",
    "device",
    "layout",
    "requires_grad",
    "alias",
    "missing",
    "raises",
    "both_raise",
    "accepts",
    "overwritten",
]
Where = Literal["output", "input", "attribute", "gradient", "call"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One thing that a caller would see differ: `where` is what was looked at, the how-many-th of those, under which name.

    Kinds: value, shape, stride, dtype, device, layout, requires_grad, alias (shared memory), missing, raises (compiled only), both_raise
    (the graph in eager too, where the program may catch it), accepts (eager raised), overwritten (by a later call). `eager` and
    `compiled` are what each gave, as short text. For values also how many of how many elements differ, the first of them by index, the
    largest difference, and in `detail` how the rule found it. `stack` is that of the op that makes the output, for a gradient that of the
    last op that reads the input.
    """

    kind: str
    where: str
    index: int
    name: str
    eager: str
    compiled: str
    elements: int | None = None
    wrong_elements: int | None = None
    first_wrong: tuple[int, ...] | None = None
    largest: float | None = None
    detail: str = ""
    node: str | None = None
    stack: tuple[Location, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """What a `dynadiag_parity` record has of it; the node and its stack are added there."""
        names = ("kind", "where", "index", "name", "eager", "compiled", "elements", "wrong_elements", "first_wrong", "largest")
        return {name: getattr(self, name) for name in names}
