"""The look-ups of each compilation, and which compilation of the first start is the counterpart of one of the second."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from dynadiag.facts.user_frames import project_path, source_function
from dynadiag.model.compiled import CacheEvent
from dynadiag.model.run import Frame, Run
from dynadiag.trace.cache_keys import KeyDifference, key_differences, read_key_lines

_MOST_COMPARED = 12
"""Of so many compilations of one function the one with the most similar key is looked for; of more, the next one is taken."""


@dataclass
class LookUps:
    """One compilation and what it asked of the caches, in order."""

    run: Run
    frame: Frame
    events: tuple[CacheEvent, ...]

    @cached_property
    def keys(self) -> frozenset[tuple[str, str]]:
        """The keys that were looked for, with the cache."""
        return frozenset((event.cache, event.key) for event in self.events if event.key is not None)

    @cached_property
    def key_lines(self) -> Mapping[tuple[str, int], tuple[str, ...]]:
        """What its keys are made of, a text for each component, by cache and position: a forward comes before its backward."""
        counts: dict[str, int] = {}
        found = {}
        for event in self.events:
            number = counts[event.cache] = counts.get(event.cache, -1) + 1
            found[event.cache, number] = read_key_lines(event.parts)
        return found

    def differences(self, old: LookUps) -> tuple[KeyDifference, ...]:
        """What differs from a compilation of the first start: components of AOTAutograd's key first, each name once.

        AOTAutograd's key is made of what the user wrote; that of Inductor also shows what follows from it.
        """
        found: dict[str, KeyDifference] = {}
        for where in sorted(self.key_lines, key=lambda pair: (pair[0] != "aotautograd", pair[1])):
            new, was = self.key_lines[where], old.key_lines.get(where)
            for difference in key_differences(was, new) if new and was else ():
                found.setdefault(difference.name, difference)
        return tuple(found.values())


def look_ups(run: Run) -> list[LookUps]:
    """The compilations of a run, in order, with their look-ups; also those that asked nothing."""
    by_frame: dict[str, list[CacheEvent]] = {}
    for event in run.caches:
        if event.frame is not None:
            by_frame.setdefault(event.frame, []).append(event)
    return [LookUps(run, frame, tuple(by_frame.get(frame.id, ()))) for frame in run.frames]


def paired(old: Run, new: Run) -> Iterator[tuple[LookUps | None, LookUps]]:
    """Each compilation of the new run with its counterpart: one of the same function in the same rank, with the same or the nearest key."""
    known: dict[object, list[LookUps]] = {}
    for entry in look_ups(old):
        known.setdefault(_group(entry), []).append(entry)
    everywhere = {key: entry for entries in known.values() for entry in entries for key in entry.keys}
    later = []
    found: dict[int, LookUps | None] = {}
    entries = look_ups(new)
    for at, entry in enumerate(entries):
        candidates = known.get(_group(entry), [])
        same = next((candidate for candidate in candidates if candidate.keys & entry.keys), None)
        if same is not None:
            candidates.remove(same)
            found[at] = same
        else:
            later.append(at)
    for at in later:
        entry = entries[at]
        candidates = known.get(_group(entry), [])
        nearest = _nearest(entry, candidates)
        if nearest is not None:
            candidates.remove(nearest)
        found[at] = nearest or next((everywhere[key] for key in entry.keys if key in everywhere), None)
    for at, entry in enumerate(entries):
        yield found[at], entry


def _nearest(entry: LookUps, candidates: list[LookUps]) -> LookUps | None:
    if len(candidates) < 2 or len(candidates) > _MOST_COMPARED or not entry.events:
        return candidates[0] if candidates else None
    return min(candidates, key=lambda candidate: (not candidate.events, len(entry.differences(candidate))))


def rank_of(frame: Frame, run: Run) -> int | None:
    """The rank of the process that compiled a frame."""
    process = next((process for process in run.processes if process.index == frame.key.process), None)
    return None if process is None else process.rank


def same_function(one: LookUps, other: LookUps) -> bool:
    """Whether two compilations are of the same function in the same rank."""
    return _group(one) == _group(other)


def _group(entry: LookUps) -> object:
    which = rank_of(entry.frame, entry.run) or 0
    file = None if entry.frame.file is None else project_path(entry.frame.file, entry.run)
    return which, file, source_function(entry.frame.name)
