"""Whose a finding is: the user's own code or a library, and on which ranks. A page filters by it with style rules alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dynadiag.facts.user_frames import is_own_file
from dynadiag.model.location import Location
from dynadiag.model.report import Finding, GraphBreak, Report

RANKS_AT_MOST = 16
RULES = "".join(
    [
        *(f"main:has(#only-{text}:checked) article.{other}{{display:none}}" for text, other in (("mine", "library"), ("library", "mine"))),
        *(f"main:has(#rank-{rank}:checked) article.ranked:not(.rank-{rank}){{display:none}}" for rank in range(RANKS_AT_MOST)),
    ]
)
"""For the style sheet of the page: what is chosen hides the others. A browser without `:has` shows everything."""


class Filters:
    """The classes of the articles of a page."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self._sites = {site.id: site for site in report.graph_breaks}
        self._frames: dict[str, str | None] = {graph.id: graph.frame for graph in report.run.graphs}
        self._frames |= {recompile.id: recompile.frame for recompile in report.recompiles}
        self._frames |= {fallback.id: fallback.frame for fallback in report.fallbacks}
        self._fallbacks = {item.id: item for item in report.fallbacks}
        self._frames |= {element.id: element.id for element in report.run.frames}
        self._processes = {frame.id: frame.key.process for frame in report.run.frames}
        self._ranks = {process.index: process.rank for process in report.run.processes if process.rank is not None}
        self.used: set[str] = set()

    def of_finding(self, finding: Finding) -> str:
        """Its classes: a graph break is a library's where Dynamo stopped in one, anything else where its line is in one."""
        sites = [self._sites[name] for name in finding.evidence if name in self._sites]
        places = [site.torch_frame or site.own_frame for site in sites] or [finding.where]
        frames = [self._frames.get(name) for name in finding.evidence]
        processes = {self._processes[frame] for frame in frames if frame is not None and frame in self._processes}
        fallbacks = [self._fallbacks[name] for name in finding.evidence if name in self._fallbacks]
        if any(each.events > 1 and not each.processes for each in fallbacks):
            return self._classes(places, ())
        return self._classes(places, processes.union(*(site.processes for site in sites), *(each.processes for each in fallbacks)))

    def of_break(self, site: GraphBreak) -> str:
        """The classes of a graph break."""
        processes = {self._processes[frame] for frame in site.frames if frame in self._processes}
        return self._classes([site.torch_frame or site.own_frame], processes.union(site.processes))

    def _classes(self, places: Iterable[Location | None], processes: Iterable[int]) -> str:
        known = [is_own_file(place.file, self.report.run) for place in places if place is not None]
        found = [] if not known else ["mine"] if any(known) else ["library"]
        ranks = sorted({self._ranks[process] for process in processes if process in self._ranks})
        if ranks and ranks[-1] < RANKS_AT_MOST:
            found += ["ranked", *(f"rank-{rank}" for rank in ranks)]
        self.used.update(found)
        return " ".join(found)

    def choices(self) -> list[dict[str, Any]]:
        """What there is to choose from among the articles that were asked for: only where it makes a difference."""
        found: list[dict[str, Any]] = []
        if {"mine", "library"} <= self.used:
            found.append({"name": "only", "title": "Code", "options": [("mine", "mine"), ("library", "libraries")]})
        ranks = [rank for rank in range(RANKS_AT_MOST) if f"rank-{rank}" in self.used]
        if len(ranks) > 1:
            found.append({"name": "rank", "title": "Rank", "options": [(str(rank), str(rank)) for rank in ranks]})
        return found
