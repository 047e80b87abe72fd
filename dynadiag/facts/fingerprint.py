"""Names for findings that stay the same when lines move, torch is updated or the project is checked out elsewhere."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from dynadiag.facts.user_frames import project_path, source_function
from dynadiag.model.location import Location
from dynadiag.model.run import Run

_STRING_OR_COMMENT = re.compile(r"""(?P<string>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')|\#.*""", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Subject:
    """What a fingerprint is made of: a code ("GB0170", "DR01"), a place, and optionally a name at that place (an input, a guard source).

    Message texts must not be put into `name`: they change between torch versions.
    """

    code: str
    where: Location | None
    name: str = ""


def fingerprints(subjects: Sequence[Subject], run: Run) -> tuple[str, ...]:
    """One fingerprint of 16 hex digits a subject, in the same order, all different.

    Made of code, project-relative path, function, normalised source line and an ordinal. Subjects that agree in all of these are numbered
    by their line, so that both keep their fingerprint when lines above them come or go.
    """
    keys = [_key(subject, run) for subject in subjects]
    order = sorted(range(len(keys)), key=lambda i: (keys[i], _line(subjects[i]), i))
    result = [""] * len(keys)
    seen: dict[tuple[str, ...], int] = {}
    for i in order:
        ordinal = seen[keys[i]] = seen.get(keys[i], -1) + 1
        result[i] = _digest((*keys[i], str(ordinal)))
    return tuple(result)


def fingerprint(code: str, where: Location | None, run: Run, *, name: str = "", ordinal: int = 0) -> str:
    """The fingerprint of one subject whose ordinal is known."""
    return _digest((*_key(Subject(code, where, name), run), str(ordinal)))


def _key(subject: Subject, run: Run) -> tuple[str, ...]:
    where = subject.where
    if where is None:
        return subject.code, "", "", "", subject.name
    return subject.code, project_path(where.file, run), source_function(where.function) or "", normal_source(where.code or ""), subject.name


def _line(subject: Subject) -> int:
    return -1 if subject.where is None or subject.where.line is None else subject.where.line


def _digest(parts: Sequence[str]) -> str:
    text = json.dumps(list(parts), ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:16]


@lru_cache(maxsize=4096)
def normal_source(code: str) -> str:
    """A source line without its comment and with single spaces, the same under every Python version."""
    return " ".join(_STRING_OR_COMMENT.sub(lambda match: match["string"] or "", code).split())
