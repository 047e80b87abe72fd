"""What is raised when a graph cannot be rebuilt, run or probed: one line that says exactly why."""

from __future__ import annotations

from dynadiag.errors import DynadiagError


class NotRebuildableError(DynadiagError):
    """The text of a graph cannot become a runnable graph; the message is the `why_not` of the report."""

    slug = "graph-not-rebuildable"


def shorten(text: str, limit: int = 160) -> str:
    """`text` on one line without control characters, cut to `limit` characters: fit to quote from a log in a message."""
    line = "".join(char if char.isprintable() else " " for char in text)
    return line if len(line) <= limit else line[: limit - 3] + "..."
