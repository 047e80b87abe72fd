"""The advice of several break sites as one list, each change once."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from dynadiag.advice.graph_breaks import MOST_FIXES
from dynadiag.advice.situation import leaves_out
from dynadiag.facts.wording import listed, short_place, unique
from dynadiag.model.report import Advice, GraphBreak


def merged_fixes(sites: Sequence[GraphBreak]) -> tuple[Advice, ...]:
    """The advice of all sites, two at most; a setting that serves several lines is told once, with the other lines named."""
    found: dict[tuple[object, ...], list[tuple[Advice, GraphBreak]]] = {}
    for site in sites:
        for advice in site.advice:
            found.setdefault(_change(advice), []).append((advice, site))
    return tuple(sorted((_told_once(group) for group in found.values()), key=leaves_out))[:MOST_FIXES]


_MARKED = re.compile(r" that (dimension \d+ of .+) varies, so")


_MARK = re.compile(r"(`torch\._dynamo\.maybe_mark_dynamic\((?P<tensor>[^`]*), )(?P<index>\d+|\[[\d, ]+\])\)`")


def marked_tensor(advice: Advice) -> str | None:
    """The tensor that an advice marks in words, without a line of the program; None for any other advice."""
    match = _MARK.search(advice.text) if advice.slug == "mark-dynamic" and not advice.before else None
    return None if match is None else match["tensor"]


def marked_together(fixes: Sequence[Advice]) -> tuple[Advice, ...]:
    """The fixes with all marks for one call, or of one tensor, put together: each alone leaves the other sizes to recompile."""
    found: dict[str, list[Advice]] = {}
    for advice in fixes:
        if advice.slug == "mark-dynamic" and _MARKED.search(advice.text):
            place = advice.before if advice.after else marked_tensor(advice)
            if place:
                found.setdefault(place, []).append(advice)
    joined = {id(group[0]): _joined(group) for group in found.values()}
    left_out = {id(advice) for group in found.values() for advice in group[1:]}
    return tuple(joined.get(id(advice), advice) for advice in fixes if id(advice) not in left_out)


def breaks_once(fixes: Sequence[Advice]) -> tuple[Advice, ...]:
    """The fixes with each break to cure told once, whichever function's graph it ends."""
    found: dict[str, Advice] = {}
    for advice in fixes:
        found.setdefault(advice.text.partition(" ends the graph of ")[0] if advice.slug == "cure-break" else repr(advice), advice)
    return tuple(found.values())


def _joined(group: Sequence[Advice]) -> Advice:
    first = group[0]
    if len(group) == 1:
        return first
    dimensions = [match[1] for advice in group if (match := _MARKED.search(advice.text)) is not None]
    said = f" that {', '.join(dimensions[:-1])} and {dimensions[-1]} vary, so"
    if not first.before:
        indices = ", ".join(match["index"] for advice in group if (match := _MARK.search(advice.text)) is not None)
        text = _MARKED.sub(lambda _: said, first.text, count=1)
        return replace(first, text=_MARK.sub(lambda match: f"{match[1]}[{indices}])`", text, count=1))
    lines = [line for advice in group for line in (advice.after or "").split("\n")[:-1]]
    return replace(first, text=_MARKED.sub(lambda _: said, first.text, count=1), after="\n".join((*unique(lines), first.before or "")))


def _change(advice: Advice) -> tuple[object, ...]:
    """What makes two pieces of advice one: a setting is the same whatever line it is told for; a change of a line is of that line."""
    is_setting = advice.before is None and advice.after is not None
    return (advice.slug, advice.after, advice.options) if is_setting else (advice.slug, advice.text, advice.before)


def _told_once(group: Sequence[tuple[Advice, GraphBreak]]) -> Advice:
    advice = group[0][0]
    others = unique(short_place(site.torch_frame) for one, site in group if one.text != advice.text)
    return replace(advice, text=f"{advice.text}; the same for {listed(others)}") if others else advice
