"""What an advice on recompiles is chosen by."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dynadiag.model.report import Advice
from dynadiag.model.run import Location

CONFIG = "torch._dynamo.config."


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """What an advice is chosen by: the kind of guard, the source with its values, and what else the log says about it."""

    kind: str
    source: str
    process: int
    raw_source: str = ""
    values: tuple[str, ...] = ()
    hint: str | None = None
    text: str = ""
    call: Location | None = None
    dynamic_false: bool = False
    compiled_again: bool = False
    on_parameter: bool = False


def none(cause: Cause) -> Iterable[Advice]:
    """No advice: nothing was tried for this cause."""
    return ()
