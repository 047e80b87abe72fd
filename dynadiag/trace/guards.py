"""Sums up the guards of a frame from torch's printed guard tree (`dynamo_cpp_guards_str`, `torch/_dynamo/guards.py`)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING

from dynadiag.digests.texts import value_guards
from dynadiag.model.run import Guard, GuardSet
from dynadiag.trace.values import NAME

_LEAF = re.compile(r"\n\t?[| ]*\+- ([A-Z][A-Z0-9_]*): ([^\n]*)")
_SOURCE = re.compile(r"[LG](?:\[[^\[\]]*\]|\.\w+)+")
_LOCAL = re.compile(r"\b[LG]\['([^']*)'\]")
_PATH = re.compile(rf"{NAME}(?:\.\w+|\[[^\[\]]*\])*")
_Leaf = tuple[str, str]
if TYPE_CHECKING:
    _Match = re.Match[str] | None
_MODULES = "._modules["
_KEYS = "list(dict.keys("
_LATENCY_WORDS = "Guard latency = "
_LATENCY = re.compile(r"Guard latency = (\d+(?:\.\d+)?) us\s*$")
_LONGEST_CODE = 1000
_LONGEST_SOURCES = 3
_MOST_WATCHED = 16
_MOST_KINDS = 200
_LONGER_IN_GUARDS = len("L['']")


def read_guards(text: str, reasons: tuple[str, ...] = (), *, values: bool = False) -> tuple[GuardSet | None, float | None]:
    """The guards of one frame and torch's own measure of one evaluation in microseconds; None for what the text does not hold.

    Only leaves are counted: the `GuardManager` lines between them are the path to a value and check nothing themselves. `reasons` are those
    of the frame's own recompile; the guards on what they name are kept as `watched`, as are those on keys of dictionaries. `values` asks
    for `GuardSet.values`.
    """
    latency = _LATENCY.search(text, max(0, text.rfind(_LATENCY_WORDS)))
    leaves = _LEAF.findall(text)
    guards = None
    if leaves:
        sources = list(map(_SOURCE.search, map(_body, leaves)))
        kinds = _few(Counter(map(_kind, leaves)))
        first = dict(reversed(leaves))
        shown = [*((kind, first[kind]) for kind in kinds if kind in first), *_longest(leaves, sources)]
        examples = dict.fromkeys(_guard(kind, body) for kind, body in shown)
        watched = tuple(dict.fromkeys((*(_watched(leaves, sources, reasons) if reasons else ()), *_keys(leaves))))
        inside = sum(_MODULES in body and _MODULES in body.partition("  # ")[0] for _, body in leaves)
        guards = GuardSet(count=len(leaves), by_kind=dict(kinds), examples=tuple(examples), watched=watched, on_modules=inside)
        if values:
            guards = replace(guards, values=value_guards(leaves))
    return guards, float(latency.group(1)) if latency else None


def _few(kinds: Counter[str]) -> Mapping[str, int]:
    """The counts by kind; torch has about forty kinds, a hostile log any number."""
    if len(kinds) <= _MOST_KINDS:
        return kinds
    few = dict(kinds.most_common(_MOST_KINDS))
    return {**few, "others": kinds.total() - sum(few.values())}


def _longest(leaves: Sequence[_Leaf], sources: Sequence[_Match]) -> list[_Leaf]:
    """The leaves with the longest sources; `sources` holds the match of each. The longest leaves come first: most others are no match."""
    found: list[tuple[int, str, str]] = []
    shortest = 0
    lengths = [len(body) for _, body in leaves]
    for position in sorted(range(len(leaves)), key=lengths.__getitem__, reverse=True):
        if lengths[position] <= shortest:
            break
        source = sources[position]
        if source is not None and source.end() - source.start() > shortest:
            found = sorted([*found, (len(source.group()), *leaves[position])], reverse=True)[:_LONGEST_SOURCES]
            shortest = found[-1][0] if len(found) == _LONGEST_SOURCES else 0
    return [(kind, body) for _, kind, body in found]


_kind = itemgetter(0)
_body = itemgetter(1)


def _watched(leaves: Sequence[_Leaf], sources: Sequence[_Match], reasons: Sequence[str]) -> list[Guard]:
    """The guards on the sources that reasons name."""
    names = frozenset().union(*map(_names_in, reasons))
    longest = max(map(len, names), default=0) + _LONGER_IN_GUARDS  # nothing longer is remembered, whatever a log may hold
    wanted = (
        leaf
        for leaf, source in zip(leaves, sources, strict=True)
        if source is not None and source.end() - source.start() <= longest and _bare(source.group()) in names
    )
    return [_guard(kind, body) for kind, body in islice(wanted, _MOST_WATCHED)]


def _keys(leaves: Sequence[_Leaf]) -> Iterator[Guard]:
    """The guards on keys of dictionaries; all of them tell whether a later call has other keys or another order."""
    return (_guard(kind, body) for kind, body in islice((leaf for leaf in leaves if leaf[1].startswith(_KEYS)), _MOST_WATCHED))


@lru_cache(maxsize=8192)  # each recompile repeats the reasons of the earlier ones
def _names_in(reason: str) -> frozenset[str]:
    """What a reason may name; torch 2.15 writes `x.y` there for `L['x'].y`."""
    return frozenset(_PATH.findall(_LOCAL.sub(r"\1", reason.partition("  #")[0].partition("\n")[0])))


@lru_cache(maxsize=8192)
def _bare(source: str) -> str:
    return _LOCAL.sub(r"\1", source, count=1)


def _guard(kind: str, body: str) -> Guard:
    """The guard of one leaf: its code, then two spaces and "#" before the user line that asked for it."""
    code, _, origin = body.partition("  # ")
    source = _SOURCE.search(code)
    return Guard(kind, source.group() if source else "", code.strip()[:_LONGEST_CODE], origin.strip()[:_LONGEST_CODE] or None)
