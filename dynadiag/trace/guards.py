"""Sums up the guards of a frame from torch's printed guard tree (`dynamo_cpp_guards_str`, `torch/_dynamo/guards.py`)."""

from __future__ import annotations

import re
from collections import Counter

from dynadiag.model.run import Guard, GuardSet

_LEAF = re.compile(r"\n[| ]*\+- ([A-Z][A-Z0-9_]*): ([^\n]*)")
_SOURCE = re.compile(r"[LG](?:\[[^\[\]]*\]|\.\w+)+")
_LOCAL = re.compile(r"\b[LG]\['([^']*)'\]")
_PATH = re.compile(r"[A-Za-z_]\w*(?:\.\w+|\[[^\[\]]*\])*")
_LATENCY = re.compile(r"Guard latency = (\d+(?:\.\d+)?) us\s*$")
_LONGEST_CODE = 1000
_LONGEST_SOURCES = 3
_MOST_WATCHED = 16


def read_guards(text: str, reasons: tuple[str, ...] = ()) -> tuple[GuardSet | None, float | None]:
    """The guards of one frame and torch's own measure of one evaluation in microseconds; None for what the text does not hold.

    Only leaves are counted: the `GuardManager` lines between them are the path to a value and check nothing themselves. `reasons` are those
    of the frame's own recompile; the guards on what they name are kept as `watched`.
    """
    latency = _LATENCY.search(text)
    leaves = _LEAF.findall(text)
    first: dict[str, str] = {}
    for kind, body in leaves:
        first.setdefault(kind, body)
    examples = dict.fromkeys(_guard(kind, body) for kind, body in [*first.items(), *_longest(leaves)])
    guards = None
    if leaves:
        by_kind = dict(Counter(kind for kind, _ in leaves))
        watched = tuple(_watched(leaves, reasons)) if reasons else ()
        inside = sum("._modules[" in body.partition("  # ")[0] for _, body in leaves)
        guards = GuardSet(count=len(leaves), by_kind=by_kind, examples=tuple(examples), watched=watched, on_modules=inside)
    return guards, float(latency.group(1)) if latency else None


def _longest(leaves: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """The leaves with the longest sources: a source is at most as long as its line, so short lines need no look."""
    found: list[tuple[int, str, str]] = []
    for kind, body in sorted(leaves, key=_length_of_body, reverse=True):
        if len(found) >= _LONGEST_SOURCES and len(body) <= found[-1][0]:
            break
        source = _SOURCE.search(body)
        if source is not None and (len(found) < _LONGEST_SOURCES or len(source.group()) > found[-1][0]):
            found = sorted([*found, (len(source.group()), kind, body)], reverse=True)[:_LONGEST_SOURCES]
    return [(kind, body) for _, kind, body in found]


def _length_of_body(leaf: tuple[str, str]) -> int:
    return len(leaf[1])


def _watched(leaves: list[tuple[str, str]], reasons: tuple[str, ...]) -> list[Guard]:
    """The guards on the sources that reasons name; torch 2.15 writes `x.y` there for `L['x'].y`."""
    names = {name for reason in reasons for name in _PATH.findall(_LOCAL.sub(r"\1", reason.partition("  #")[0].partition("\n")[0]))}
    found: list[Guard] = []
    for kind, body in leaves:
        source = _SOURCE.search(body)
        if source is not None and _LOCAL.sub(r"\1", source.group(), count=1) in names:
            found.append(_guard(kind, body))
    return found[:_MOST_WATCHED]


def _guard(kind: str, body: str) -> Guard:
    """The guard of one leaf: its code, then two spaces and "#" before the user line that asked for it."""
    code, _, origin = body.partition("  # ")
    source = _SOURCE.search(code)
    return Guard(kind, source.group() if source else "", code.strip()[:_LONGEST_CODE], origin.strip()[:_LONGEST_CODE] or None)
