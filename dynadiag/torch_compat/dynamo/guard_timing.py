"""How long guards take: as a whole, by their parts, or not timed at all."""

from __future__ import annotations

import statistics
import sys
from collections import Counter
from heapq import heappop, heappush
from time import perf_counter
from types import ModuleType
from typing import Any

from dynadiag.torch_compat.trace.hooks import Hooks

_CHECKS = 50
_MOST_PARTS = 40
_MOST_MANAGERS = 5000


def check_guards_untimed() -> None:
    """From now on what this process compiles has its guards checked once, as before, but not timed: the latency is 0.

    torch flushes the CPU's caches before it times them, which took 24 of the 37 CPU milliseconds of compiling a small function with the
    eager back end (`profile_guard_manager` in `torch/csrc/dynamo/guards.cpp`, 2.11 to 2.15). Does nothing where Dynamo is not imported.
    """
    guards = sys.modules.get("torch._dynamo.guards")
    if guards is not None and hasattr(guards, "profile_guard_manager"):
        guards.profile_guard_manager = _checked  # type: ignore[attr-defined]


def _checked(root: Any, scope: Any, _times: int) -> float:
    root.check(scope)
    return 0.0


def evaluation_us(root: Any, scope: Any, times: int) -> float:
    """The median of single evaluations of a guard set, less what reading the clock takes, in microseconds."""
    spans = []
    for _ in range(times):
        began = perf_counter()
        root.check(scope)
        middle = perf_counter()
        spans.append(2 * middle - began - perf_counter())
    return max(0.0, statistics.median(spans) * 1e6)


def watch_guard_parts(guards: ModuleType, hooks: Hooks) -> None:
    """Record what the parts of each guard set cost, where torch times the whole (`torch/_dynamo/guards.py`, 2.11 to 2.15)."""

    def timed(args: tuple[Any, ...], _kwargs: dict[str, Any], _latency: Any) -> None:
        found = part_times(args[0], args[1])
        if found is not None:
            hooks.sink.artifact("dynadiag_guard_cost", found)

    hooks.install("guard_cost", lambda: hooks.watch(guards, "profile_guard_manager", after=timed, file=guards.__file__))


def part_times(root: Any, scope: Any) -> dict[str, Any] | None:
    """Microseconds of one check of all guards, and of its most expensive parts by their source; None where this torch cannot tell.

    A part is a value with all that is checked below it. torch times no part, but it can copy a guard set without the others (by
    `RootGuardManager.clone_manager` it makes the smaller set that tells compiled versions apart): what is given is the time of such a copy,
    less that of a copy with no part at all. The most expensive part is taken apart first; at most 40 are timed, each by its fastest of 50
    checks.
    """
    top = root.get_source()
    if not hasattr(root, "clone_manager") or (tree := _tree(root)) is None:
        return None
    empty = root.clone_manager(lambda item: item.get_source() == top)
    if empty is None or not root.check(scope) or not empty.check(scope):
        return None
    whole_us, root_us = _fastest_us(root, empty, scope)
    parts: dict[str, float] = {}
    waiting: list[tuple[float, int, str, frozenset[str]]] = [(0.0, 0, top, frozenset((top,)))]
    while waiting and len(parts) < _MOST_PARTS:
        _, _, above, path = heappop(waiting)
        for source in tree.get(above, ())[: _MOST_PARTS - len(parts)]:
            kept = path | _below(source, tree)
            alone = root.clone_manager(lambda element, kept=kept: element.get_source() in kept)
            if alone is not None and alone.check(scope):
                took_us, without_us = _fastest_us(alone, empty, scope)
                parts[source] = max(0.0, took_us - without_us)
                heappush(waiting, (-parts[source], len(parts), source, path | {source}))
    return {"checks": _CHECKS, "whole_us": whole_us, "root_us": root_us, "parts": parts}


def _fastest_us(item: Any, other: Any, scope: Any) -> tuple[float, float]:
    """The fastest check of each of two guard sets, taken in turn: what else the machine does only slows checks down."""
    found = [], []  # type: tuple[list[float], list[float]]
    for _ in range(_CHECKS):
        for guards, spans in zip((item, other), found):
            began = perf_counter()
            guards.check(scope)
            spans.append(perf_counter() - began)
    return min(found[0]) * 1e6, min(found[1]) * 1e6


def _tree(root: Any) -> dict[str, list[str]] | None:
    """The sources below each source, without those that occur twice, which a copy could not tell apart; None where there are too many."""
    found: dict[str, list[str]] = {}
    counts: Counter[str] = Counter()
    waiting = [root]
    while waiting:
        manager = waiting.pop()
        inside = list(manager.get_child_managers())
        if hasattr(manager, "get_key_value_managers"):
            inside += [item for pair in manager.get_key_value_managers().values() for item in pair if item is not None]
        source = manager.get_source()
        counts[source] += 1
        if len(found) > _MOST_MANAGERS:
            return None
        found.setdefault(source, []).extend(element.get_source() for element in inside)
        waiting += inside
    return {source: [name for name in inside if counts[name] == 1] for source, inside in found.items() if counts[source] == 1}


def _below(source: str, tree: dict[str, list[str]]) -> frozenset[str]:
    found, waiting = set(), [source]
    while waiting:
        name = waiting.pop()
        found.add(name)
        waiting += tree[name]
    return frozenset(found)
