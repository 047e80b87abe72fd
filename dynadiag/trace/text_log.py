"""Reads plain text logs: `TORCH_LOGS` output, warnings, tracebacks pasted in an issue."""

from __future__ import annotations

from dynadiag.trace.drafts import RunDraft


class TextReader:
    """Takes the lines of a log that are no records and finds what torch said in them."""

    def __init__(self, run: RunDraft, log: str) -> None:
        self.run = run
        self.log = log

    def line(self, text: str, offset: int) -> None:
        """One line of the log."""

    def end(self) -> None:
        """The log is at its end."""
