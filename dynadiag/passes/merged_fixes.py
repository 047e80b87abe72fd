"""The advice of several break sites as one list, each change once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dynadiag.advice.break_context import leaves_out
from dynadiag.advice.graph_breaks import MOST_FIXES
from dynadiag.facts.wording import listed, short_place, unique
from dynadiag.model.report import Advice, GraphBreak


def merged_fixes(sites: Sequence[GraphBreak]) -> tuple[Advice, ...]:
    """The advice of all sites, two at most; a setting that serves several lines is told once, with the other lines named."""
    found: dict[tuple[object, ...], list[tuple[Advice, GraphBreak]]] = {}
    for site in sites:
        for advice in site.advice:
            found.setdefault(_change(advice), []).append((advice, site))
    return tuple(sorted((_told_once(group) for group in found.values()), key=leaves_out))[:MOST_FIXES]


def _change(advice: Advice) -> tuple[object, ...]:
    """What makes two pieces of advice one: a setting is the same whatever line it is told for; a change of a line is of that line."""
    is_setting = advice.before is None and advice.after is not None
    return (advice.slug, advice.after, advice.options) if is_setting else (advice.slug, advice.text, advice.before)


def _told_once(group: Sequence[tuple[Advice, GraphBreak]]) -> Advice:
    advice = group[0][0]
    others = unique(short_place(site.torch_frame) for one, site in group if one.text != advice.text)
    return replace(advice, text=f"{advice.text}; the same for {listed(others)}") if others else advice
