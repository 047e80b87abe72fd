"""What the compile caches did not give in the newer of two runs, and the components of the keys that differ."""

from __future__ import annotations

from collections.abc import Iterator

from dynadiag.diff.result import CacheChange, KeyPartChange
from dynadiag.facts.cache_lookups import LookUps, paired
from dynadiag.facts.user_frames import project_path, source_function
from dynadiag.facts.wording import unique
from dynadiag.model.run import Run

_MOST = 50
_MOST_PARTS = 20
_LONGEST = 400


def cache_changes(old: Run, new: Run) -> Iterator[CacheChange]:
    """Compilations of the new run that missed a cache by another key than in the old one, or that only the old run got from a cache.

    Where both runs missed by the same key nothing has changed.
    """
    found = 0
    for was, now in paired(old, new):
        if found >= _MOST:
            return
        if all(event.result == "hit" for event in now.events) or (was is not None and _missed_alike(was, now)):
            continue
        parts = () if was is None else now.differences(was)
        found += 1
        yield CacheChange(
            function=_function(now, new),
            old=None if was is None or not was.events else _answers(was),
            new=_answers(now),
            why=next((event.why for event in now.events if event.why), None),
            parts=tuple(KeyPartChange(name=part.name, old=_short(part.old), new=_short(part.new)) for part in parts[:_MOST_PARTS]),
        )


def _missed_alike(was: LookUps, now: LookUps) -> bool:
    """Whether both asked by the same keys, or neither could ask, with the same answers."""
    return was.keys == now.keys and _answers(was) == _answers(now)


def _answers(asked: LookUps) -> str:
    return ", ".join(unique(f"{event.cache} {event.result}" for event in asked.events))


def _function(asked: LookUps, run: Run) -> str:
    name = source_function(asked.frame.name) or "an unnamed function"
    return name if asked.frame.file is None else f"{name} ({project_path(asked.frame.file, run)})"


def _short(text: str | None) -> str | None:
    return None if text is None else " ".join(text[: 4 * _LONGEST].split())[:_LONGEST]
