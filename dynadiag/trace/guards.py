"""Sums up the guards of a frame from torch's printed guard tree (`dynamo_cpp_guards_str`, `torch/_dynamo/guards.py`)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Set
from operator import itemgetter

from dynadiag.model.run import Guard, GuardSet

_LEAF = re.compile(r"\n\t?[| ]*\+- ([A-Z][A-Z0-9_]*): ([^\n]*)")
_SOURCE = re.compile(r"[LG](?:\[[^\[\]]*\]|\.\w+)+")
_LOCAL = re.compile(r"\b[LG]\['([^']*)'\]")
_PATH = re.compile(r"[A-Za-z_]\w*(?:\.\w+|\[[^\[\]]*\])*")
_Leaf = tuple[str, str]
_MODULES = "._modules["
_LATENCY_WORDS = "Guard latency = "
_LATENCY = re.compile(r"Guard latency = (\d+(?:\.\d+)?) us\s*$")
_LONGEST_CODE = 1000
_LONGEST_SOURCES = 3
_MOST_WATCHED = 16


def read_guards(text: str, reasons: tuple[str, ...] = ()) -> tuple[GuardSet | None, float | None]:
    """The guards of one frame and torch's own measure of one evaluation in microseconds; None for what the text does not hold.

    Only leaves are counted: the `GuardManager` lines between them are the path to a value and check nothing themselves. `reasons` are those
    of the frame's own recompile; the guards on what they name are kept as `watched`.
    """
    latency = _LATENCY.search(text, max(0, text.rfind(_LATENCY_WORDS)))
    leaves = _LEAF.findall(text)
    guards = None
    if leaves:
        ordered = sorted(leaves, key=_length_of_body, reverse=True)
        sources = list(map(_SOURCE.search, map(_body, ordered)))
        kinds = Counter(map(_kind, leaves))
        first = dict(reversed(leaves))
        shown = [*((kind, first[kind]) for kind in kinds), *_longest(ordered, sources)]
        examples = dict.fromkeys(_guard(kind, body) for kind, body in shown)
        watched = tuple(_watched(leaves, {found.group() for found in sources if found}, reasons)) if reasons else ()
        inside = sum(_MODULES in body and _MODULES in body.partition("  # ")[0] for _, body in leaves)
        guards = GuardSet(count=len(leaves), by_kind=dict(kinds), examples=tuple(examples), watched=watched, on_modules=inside)
    return guards, float(latency.group(1)) if latency else None


def _longest(leaves: list[_Leaf], sources: list[re.Match[str] | None]) -> list[_Leaf]:
    """The leaves with the longest sources; `sources` holds the match of each."""
    found: list[tuple[int, str, str]] = []
    shortest = 0
    for source, (kind, body) in zip(sources, leaves, strict=True):
        if source is not None and source.end() - source.start() > shortest:
            found = sorted([*found, (len(source.group()), kind, body)], reverse=True)[:_LONGEST_SOURCES]
            shortest = found[-1][0] if len(found) == _LONGEST_SOURCES else 0
    return [(kind, body) for _, kind, body in found]


_kind = itemgetter(0)
_body = itemgetter(1)


def _length_of_body(leaf: _Leaf) -> int:
    return len(leaf[1])


def _watched(leaves: list[_Leaf], sources: Set[str], reasons: tuple[str, ...]) -> list[Guard]:
    """The guards on the sources that reasons name; torch 2.15 writes `x.y` there for `L['x'].y`."""
    names = {name for reason in reasons for name in _PATH.findall(_LOCAL.sub(r"\1", reason.partition("  #")[0].partition("\n")[0]))}
    wanted = {source for source in sources if _LOCAL.sub(r"\1", source, count=1) in names}
    found = []
    for kind, body in leaves if wanted else ():
        source = _SOURCE.search(body)
        if source is not None and source.group() in wanted:
            found.append(_guard(kind, body))
    return found[:_MOST_WATCHED]


def _guard(kind: str, body: str) -> Guard:
    """The guard of one leaf: its code, then two spaces and "#" before the user line that asked for it."""
    code, _, origin = body.partition("  # ")
    source = _SOURCE.search(code)
    return Guard(kind, source.group() if source else "", code.strip()[:_LONGEST_CODE], origin.strip()[:_LONGEST_CODE] or None)
