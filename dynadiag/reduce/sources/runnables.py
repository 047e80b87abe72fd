"""The `fx_graph_runnable` artifacts of a log: scripts that torch wrote of the graphs that inductor compiled. Read, never run. No torch."""

from __future__ import annotations

from pathlib import Path

from dynadiag.trace.records import scan, untab
from dynadiag.trace.sources import OpenLog, find_sources

_NAME = b"fx_graph_runnable"
_MOST = 100


def runnable_texts(path: Path) -> list[str]:
    """The texts of the artifacts in a run, a log or a folder of logs, at most 100. Raises UnreadableInputError when there is no log."""
    found: list[str] = []
    for log in find_sources(path).logs:
        with OpenLog(log) as stream:
            for piece in scan(stream, lambda _: None):
                _, kind, name, _ = piece.match.groups()
                if kind == b"artifact" and name == _NAME and piece.kept and len(found) < _MOST:
                    found.append(untab(piece.payload()).decode("utf-8", "replace"))
    return found
