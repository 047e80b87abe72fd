"""Where a size or number that torch had made dynamic became a constant again: a guard that fails on it names the tensor, not that line."""

from __future__ import annotations

from collections.abc import Mapping

from dynadiag.facts.guard_sources import readable
from dynadiag.facts.user_frames import of_last_run, own_frame
from dynadiag.model.location import Location
from dynadiag.model.run import Run
from dynadiag.passes.transitions import Row


def constant_at(row: Row, run: Run) -> Location | None:
    """The user's line that made the source of a row a constant in the compilations that its recompiles led to."""
    known = _lines(run)
    places = [known[which] for step in row.steps if (which := (step.frame.id, row.source)) in known]
    return next((place for place in places if places.count(place) == len(places)), None)


@of_last_run
def _lines(run: Run) -> Mapping[tuple[str, str], Location]:
    """By frame and readable source (`symbolic_shape_specialization`, 2.11 and 2.15)."""
    found: dict[tuple[str, str], Location] = {}
    for fact in run.shape_facts:
        place = own_frame(fact.stack, run) if fact.kind == "specialized" else None
        if place is not None:
            found |= {(fact.frame, readable(source)): place for source in fact.sources}
    return found
