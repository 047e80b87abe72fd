"""Reads `parity.json`, which `dynadiag parity` leaves beside what was recorded. Everything in it is checked: a run may come from anybody.

It is no part of the `Run`: nothing in it happened while the program ran.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dynadiag.files import read_small
from dynadiag.model.location import Location
from dynadiag.model.parity import CouldDiffer, Replayed
from dynadiag.trace.sources import find_sources
from dynadiag.trace.values import BadRecordError, as_dict, as_id, as_list, as_text, decode, parse_json

FILE = "parity.json"
_MOST_BYTES = 64 << 20
_MOST_FINDINGS = 1000
_LONGEST = 2000


def replayed_beside(path: str | os.PathLike[str]) -> tuple[Replayed | None, str | None]:
    """What `dynadiag parity` found for the run directory at a path, and a note when its file is there but cannot be used."""
    sources = find_sources(path)
    return replayed(sources.folder / FILE) if sources.is_run and sources.folder is not None else (None, None)


def replayed(file: Path) -> tuple[Replayed | None, str | None]:
    """What the file says, and a note when it is there but cannot be used."""
    try:
        data = read_small(file, _MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise BadRecordError(f"larger than {_MOST_BYTES >> 20} MB")
        found = as_dict(parse_json(decode(data), "no JSON"))
        summary = as_dict(found.get("summary"))
        graphs, compared = as_id(summary.get("graphs")), as_id(summary.get("compared"))
        if found.get("schema_version") != 1 or graphs is None or compared is None:
            raise BadRecordError("not written by this dynadiag")
    except FileNotFoundError:
        return None, None
    except OSError as error:
        return None, f"{FILE} cannot be read: {error.strerror}"
    except BadRecordError as error:
        return None, f"{FILE} cannot be used: {error.reason}"
    findings = [_finding(as_dict(entry)) for entry in as_list(found.get("findings"))[:_MOST_FINDINGS]]
    told = Replayed(
        torch=_cut(found.get("torch")),
        graphs=graphs,
        compared=compared,
        findings=tuple(finding for finding in findings if finding is not None),
    )
    return told, None


def _cut(value: object) -> str | None:
    text = as_text(value)
    return None if text is None else text[:_LONGEST]


def _finding(entry: Mapping[str, Any]) -> CouldDiffer | None:
    code, title, would = _cut(entry.get("code")), _cut(entry.get("title")), _cut(entry.get("would"))
    if code is None or title is None or would is None:
        return None
    tensor = as_dict(entry.get("tensor"))
    return CouldDiffer(
        code=code,
        title=title,
        would=would,
        graph=_cut(entry.get("graph")) or "?",
        layer=_cut(entry.get("layer")) or "?",
        where=_cut(tensor.get("where")) or "?",
        name=_cut(tensor.get("name")) or "?",
        source=_cut(tensor.get("source")),
        aspect=_cut(tensor.get("aspect")) or "?",
        eager=_cut(tensor.get("eager")) or "?",
        compiled=_cut(tensor.get("compiled")) or "?",
        elements=as_id(tensor.get("elements")),
        wrong_elements=as_id(tensor.get("wrong_elements")),
        others=as_id(entry.get("others")) or 0,
        line=_line(as_dict(entry.get("where"))),
        test=_cut(entry.get("test")),
    )


def _line(entry: Mapping[str, Any]) -> Location | None:
    file = _cut(entry.get("file"))
    return None if file is None else Location(file, as_id(entry.get("line")), _cut(entry.get("function")), _cut(entry.get("code")))
