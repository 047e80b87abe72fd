"""What the recorded graphs of a function took: which of its names are tensors, and whether a gradient flows through them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from dynadiag.advice.places import Place
from dynadiag.facts.user_frames import of_last_run, source_function
from dynadiag.model.graph import TracedInput
from dynadiag.model.location import Location
from dynadiag.model.run import Frame, Run

_MOST_DECORATORS = 3
_NAME = re.compile(r"L\['(\w+)'\]$")
_FLOATS = frozenset(("torch.float32", "torch.float64", "torch.float16", "torch.bfloat16"))


def with_given(place: Place | None, at: Location, run: Run) -> Place | None:
    """The place with what all recorded compilations of its function took."""
    if place is None or at.line is None:
        return place
    frames = (frame for frame in run.frames if frame.file == at.file and _is_of(frame, at.line - place.row + 1, place))
    taken = [one for frame in frames for one in _taken(run).get(frame.id, ())]
    shapes: dict[str, set[tuple[int, ...] | None]] = {}
    for one in taken:
        if (match := _NAME.match(one.source)) is not None:
            shapes.setdefault(match[1], set()).add(one.shape)
    free = bool(taken) and all(one.requires_grad is False and one.dtype in _FLOATS for one in taken)
    written = any("requires_grad" in row for row in place.rows[: place.node.end_lineno])
    singles = frozenset(name for name, found in shapes.items() if found == {()})
    return replace(place, tensors=frozenset(shapes), singles=singles, no_gradient=free and not written)


@of_last_run
def sizes_vary(run: Run) -> bool:
    """Whether two compilations of one function took a tensor of another size under the same name."""
    codes = {frame.id: (frame.key.process, frame.file, frame.line, frame.name) for frame in run.frames}
    shapes: dict[tuple[object, str], set[tuple[int, ...] | None]] = {}
    for one in run.traced_inputs:
        if not one.is_parameter:
            shapes.setdefault((codes.get(one.frame), one.source), set()).add(one.shape)
    return any(len(found) > 1 for (code, _), found in shapes.items() if code is not None)


def _is_of(frame: Frame, begin: int, place: Place) -> bool:
    """Whether the frame is this function, or goes on in it after a break; that of a decorated one begins with its decorators."""
    named = source_function(frame.name) == place.node.name
    return named and frame.line is not None and begin - _MOST_DECORATORS <= frame.line < begin + (place.node.end_lineno or 0)


@of_last_run
def _taken(run: Run) -> Mapping[str, list[TracedInput]]:
    found: dict[str, list[TracedInput]] = {}
    for one in run.traced_inputs:
        found.setdefault(one.frame, []).append(one)
    return found
