"""What `torch._dynamo.explain()` returns, as it is printed (`torch/_dynamo/backends/debugging.py`, `ExplainOutput`, torch 2.6 to 2.15)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from dynadiag.model.location import Location

_REASON = re.compile(r"^\s*Reason: ?(.*)$")
_PLACE = re.compile(r"^\s*<FrameSummary file (.*), line (\d{1,9}) in (.*)>\s*$")
_GRAPH = re.compile(r"^\s*Ops \d+:\s*$")
_OPERATOR = re.compile(r"^\s*<(?:built-in (?:function|method) |function |method ')?([\w.]+)")
_SECTION = re.compile(r"^(?:Out Guards|Compile Times|Ops per Graph|Break Reasons):")


@dataclass(frozen=True, slots=True)
class Explanation:
    """The breaks with their places, and the names of the operators of each graph."""

    breaks: tuple[tuple[str, Location | None], ...]
    graphs: tuple[tuple[str, ...], ...]


def read_explanation(lines: Sequence[str]) -> Explanation:
    """What the lines say; a part that was cut off is missing."""
    breaks: list[tuple[list[str], Location | None]] = []
    graphs: list[list[str]] = []
    section, in_reason = "", False
    for line in lines:
        if (found := _SECTION.match(line)) is not None:
            section, in_reason = found[0], False
        elif section == "Break Reasons:":
            in_reason = _add_to_breaks(line, breaks, in_reason=in_reason)
        elif section == "Ops per Graph:":
            if _GRAPH.match(line):
                graphs.append([])
            elif graphs and line.strip():
                operator = _OPERATOR.match(line)
                graphs[-1].append(operator[1] if operator is not None else line.strip())
    told = tuple(("\n".join(reason).strip(), place) for reason, place in breaks)
    return Explanation(told, tuple(map(tuple, graphs)))


def _add_to_breaks(line: str, breaks: list[tuple[list[str], Location | None]], *, in_reason: bool) -> bool:
    """Takes a line of the reasons; whether the next one may go on with a reason."""
    if (found := _REASON.match(line)) is not None:
        breaks.append(([found[1]], None))
        return True
    if line.strip() == "User Stack:" or line.startswith("  Break Reason"):
        return False
    if (place := _PLACE.match(line)) is not None and breaks:
        breaks[-1] = breaks[-1][0], Location(place[1], int(place[2]), place[3])  # the innermost is the last
        return False
    if in_reason:
        breaks[-1][0].append(line)
    return in_reason
