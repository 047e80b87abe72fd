"""Names for findings that stay the same when lines move, torch is updated or the project is checked out elsewhere.

A fingerprint consists of five short digests and perhaps a number, joined by "-". So two fingerprints can be compared part by part, which
finds a finding again whose function was renamed since (`matched`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from dynadiag.facts.statements import NOTHING, function_at, statement_at
from dynadiag.facts.user_frames import is_own_file, of_last_run, project_path, source_function
from dynadiag.model.location import Location
from dynadiag.model.run import Run


@dataclass(frozen=True, slots=True)
class Subject:
    """What a fingerprint is made of: a code ("GB0170", "DR01"), a place, and optionally a name at that place (an input, a guard source).

    `function` is the name of another function that belongs to it, such as the one that is called there. Message texts must not be put
    into `name`: they change between torch versions.
    """

    code: str
    where: Location | None
    name: str = ""
    function: str = ""


class _Parts(NamedTuple):
    """A fingerprint taken apart: the digests in their order, and the ordinal."""

    code: str
    subject: str
    function: str
    statement: str
    names: str
    ordinal: int


SCHEME = 2
"""Raised when the same finding gets another fingerprint than before, so that a baseline tells which of its fingerprints are of before."""
_LENGTHS = 5, 8, 6, 6, 6
"""Digits of the digests."""


def fingerprints(subjects: Sequence[Subject], run: Run) -> tuple[str, ...]:
    """One fingerprint a subject, in the same order, all different.

    Made of the code, the project-relative path with the name, the function, what the statement does, the names in it, and an ordinal.
    Subjects that agree in all of these are numbered by their line, so that both keep their fingerprint when lines above them come or go.
    """
    return numbered([(fingerprint(subject, run), subject.where) for subject in subjects])


def numbered(entries: Sequence[tuple[str, Location | None]]) -> tuple[str, ...]:
    """The fingerprints of entries, in the same order; equal ones are numbered by their lines."""
    order = sorted(range(len(entries)), key=lambda i: (entries[i][0], _line(entries[i][1]), i))
    result = [""] * len(entries)
    seen: dict[str, int] = {}
    for i in order:
        key = entries[i][0]
        ordinal = seen[key] = seen.get(key, -1) + 1
        result[i] = f"{key}-{ordinal}" if ordinal else key
    return tuple(result)


def fingerprint(subject: Subject, run: Run) -> str:
    """The fingerprint of a subject that is the only one of its kind."""
    where = subject.where
    path = "" if where is None else project_path(where.file, run)
    function = "" if where is None else function_at(where, run).name
    shape, names = NOTHING if where is None else statement_at(where, run)
    parts = (subject.code, (path, subject.name), function, shape, (*names, (source_function(subject.function) or "").rpartition(".")[2]))
    return "-".join(_digest(part, length) for part, length in zip(parts, _LENGTHS, strict=False))


def _line(where: Location | None) -> int:
    return -1 if where is None or where.line is None else where.line


@lru_cache(maxsize=8192)
def _digest(part: str | tuple[str, ...], length: int) -> str:
    return hashlib.sha256(json.dumps(part, ensure_ascii=True).encode("ascii")).hexdigest()[:length]


@of_last_run
def functions_of(run: Run) -> frozenset[str]:
    """What `matched` needs to know which functions are still there: digests of the names of all own functions that a run shows."""
    names = {function.name for function in run.functions}
    names |= {source_function(frame.name) or "" for frame in run.frames if frame.file is not None and is_own_file(frame.file, run)}
    return frozenset(_digest(word, _LENGTHS[2]) for word in names | {name.rpartition(".")[2] for name in names})


def matched(
    old: Sequence[str], new: Sequence[str], *, there: Set[str], were: Set[str] = frozenset(), other_torch: bool = False
) -> dict[int, int]:
    """Which of the new fingerprints (by position) is which of the old ones; what is not in it has come or gone.

    Equal ones first, then those that differ in one respect that an edit may change, if only one such pair is left: how many equal lines
    stand above; the names of variables; the name of the function (all equal lines of it), when no function of the old name is `there`
    (`functions_of` the new run) any more, and none of the new name was there before (`were`, `functions_of` the old run, where it is
    known); with another torch the id of the break.
    """
    left = [{number: _parts(name) for number, name in enumerate(side)} for side in (old, new)]
    before = were | {pair.function for pair in left[0].values()}
    found: dict[int, int] = {}
    for key, one_of, renamed in (*_STEPS, *(_OTHER_TORCH if other_torch else ())):
        was = _by_key(((n, entry) for n, entry in left[0].items() if not renamed or entry.function not in there), key)
        now = _by_key(((n, item) for n, item in left[1].items() if not renamed or item.function not in before), key)
        for same in was.keys() & now.keys():
            if all(len({one_of(side[n]) for n in listed}) == 1 for side, listed in zip(left, (was[same], now[same]), strict=True)):
                for of, to in zip(was[same], now[same], strict=False):
                    found[to] = of
                    del left[0][of], left[1][to]
    return found


_Key = Callable[[_Parts], object]
# What has to be equal; of what there may be only one on each side; and whether the old function has to be gone.
_STEPS: tuple[tuple[_Key, _Key, bool], ...] = (
    (lambda pair: pair, lambda item: None, False),
    (lambda element: element[:5], lambda one: None, False),
    (lambda one: (one.code, one.subject, one.function, one.statement), lambda one: one[:5], False),
    (lambda one: (one.code, one.subject, one.statement, one.names), lambda one: one.function, True),
    (lambda one: (one.code, one.subject, one.statement), lambda one: one[2:], True),
)
_OTHER_TORCH: tuple[tuple[_Key, _Key, bool], ...] = ((lambda one: one[1:], lambda one: one, False),)


def _parts(text: str) -> _Parts:
    parts = text.split("-")
    if len(parts) not in (5, 6) or not all(parts) or (len(parts) == 6 and not parts[5].isdecimal()):
        return _Parts(text, "", "", "", "", 0)
    code, subject, function, statement, names = parts[:5]
    return _Parts(code, subject, function, statement, names, int(parts[5]) if len(parts) == 6 else 0)


def _by_key(entries: Iterable[tuple[int, _Parts]], key: Callable[[_Parts], object]) -> dict[object, list[int]]:
    found: dict[object, list[int]] = {}
    for number, pair in sorted(entries, key=lambda entry: (entry[1].ordinal, entry[0])):
        found.setdefault(key(pair), []).append(number)
    return found
