"""Which findings stand behind which: code that is compiled as a function of its own because a graph break left its caller.

Three things show that: it is the function that goes on after the break; its callers end at the line that broke, in the call of the compiled
function that broke there; or it was called by a function that a break left eager as a whole.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from dynadiag.facts.user_frames import bare_name, callers, is_torchs_file
from dynadiag.model.location import Location
from dynadiag.model.report import Fallback, Finding, GraphBreak, Recompile
from dynadiag.model.run import Frame, Run

_Place = tuple[str, object]
_Call = tuple[int, tuple[_Place, ...]]
"""A process and where its functions stand, from the outermost on: each with its line, the last one with its line or its name."""


def causes_of(
    findings: Iterable[Finding],
    breaks: Sequence[GraphBreak],
    recompiles: Sequence[Recompile],
    fallbacks: Sequence[Fallback],
    run: Run,
) -> Mapping[str, tuple[str, ...]]:
    """By id of a finding, the ids of those of graph breaks that all of its code stands behind."""
    if not breaks:
        return {}
    frames = {frame.id: frame for frame in run.frames}
    of_parts = {
        **{site.id: site.frames for site in breaks},
        **{item.id: (item.frame,) for item in recompiles},
        **{entry.id: (entry.frame,) for entry in fallbacks if entry.frame is not None},
    }
    findings = list(findings)
    finding_of = {site.id: finding.id for finding in findings for site in breaks if site.id in finding.evidence}
    resumed, left = _resumed_by(breaks), _calls_left_by(breaks, frames)
    found: dict[str, tuple[str, ...]] = {}
    for finding in findings:
        names = dict.fromkeys(name for part in finding.evidence for name in of_parts.get(part, ()) if name in frames)
        behind = [[finding_of[site] for site in _sites(frames[name], resumed, left) if site in finding_of] for name in names]
        if behind and all(behind):
            others = dict.fromkeys(cause for causes in behind for cause in causes if cause != finding.id)
            if others:
                found[finding.id] = tuple(others)
    return found


def _resumed_by(breaks: Iterable[GraphBreak]) -> Mapping[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for site in breaks:
        for name in site.resume_frames:
            found[name].append(site.id)
    return found


def _calls_left_by(breaks: Iterable[GraphBreak], frames: Mapping[str, Frame]) -> Mapping[_Call, list[str]]:
    """The calls from which Python went on outside of a graph, with the sites that ended it there."""
    found: dict[_Call, list[str]] = defaultdict(list)
    for site in breaks:
        known = [frames[name] for name in site.frames if name in frames]
        for call in dict.fromkeys(call for frame in known for call in _left_at(site, frame)):
            found[call].append(site.id)
    return found


def _left_at(site: GraphBreak, frame: Frame) -> Iterator[_Call]:
    entered = _lines(callers(frame))
    if frame.id in site.skipped_frames:
        yield frame.key.process, (*entered, (frame.file or "", bare_name(frame.name)))
        return
    stopped = _lines(site.stack)
    if len(stopped) > len(entered) and stopped[: len(entered)] == entered and stopped[len(entered)][0] == frame.file:
        yield frame.key.process, stopped[: len(entered) + 1]


def _lines(stack: Iterable[Location]) -> tuple[_Place, ...]:
    """The places outside of torch, whose own frames not every record has."""
    return tuple((place.file, place.line) for place in stack if not is_torchs_file(place.file))


def _sites(frame: Frame, resumed: Mapping[str, Sequence[str]], left: Mapping[_Call, Sequence[str]]) -> Iterator[str]:
    """The sites that made the compilation of this frame one of its own."""
    yield from resumed.get(frame.id, ())
    stack = [place for place in callers(frame) if not is_torchs_file(place.file)]
    lines = _lines(stack)
    for at, place in enumerate(stack):
        for last in (place.line, bare_name(place.function)):
            yield from left.get((frame.key.process, (*lines[:at], (place.file, last))), ())
