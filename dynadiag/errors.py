"""The errors of dynadiag: one line for people, a slug for programs, an exit status for the shell.

Exit statuses are the contract of every verb: 2 for bad input or usage, 3 for a missing or unsupported torch, 5 for nothing to work on.
"""

from __future__ import annotations


class DynadiagError(Exception):
    """An error whose one-line message says what went wrong, where, and what to do.

    `slug` names the error in documentation and JSON; `exit_code` is what the command line returns; `details` are its further lines.
    """

    slug = "error"
    exit_code = 2

    def __init__(self, message: str, *, slug: str | None = None, exit_code: int | None = None, details: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.details = details
        if slug is not None:
            self.slug = slug
        if exit_code is not None:
            self.exit_code = exit_code


class UsageError(DynadiagError):
    """The command line or the arguments of a call do not make sense."""

    slug = "usage"


class UnreadableInputError(DynadiagError):
    """A file or folder is missing, unreadable, or not of the expected kind."""

    slug = "unreadable-input"


class OutputError(DynadiagError):
    """A directory or file that dynadiag should write is not writable, or was created by something else."""

    slug = "unwritable-output"


class NoViewError(DynadiagError):
    """No way is found on this machine to keep what runs write apart from the user's files."""

    slug = "no-private-view"


class TorchUnsupportedError(DynadiagError):
    """Torch is missing, too old, or lacks a private name that dynadiag needs (the message names the version)."""

    slug = "torch-unsupported"
    exit_code = 3


class NothingFoundError(DynadiagError):
    """There is nothing to work on: nothing was compiled, or nothing can be compared."""

    slug = "nothing-found"
    exit_code = 5


class NotRebuildableError(DynadiagError):
    """A graph cannot be made runnable from its text, or a size in it has no value; the message is the `why_not` of the report."""

    slug = "graph-not-rebuildable"


class EditError(DynadiagError):
    """A change of a source text that cannot be made; the message says why in one clause."""

    slug = "not-applicable"


def shorten(text: str, limit: int = 160) -> str:
    """`text` on one line without control characters, cut to `limit` characters: fit to quote from a log in a message."""
    line = "".join(char if char.isprintable() else " " for char in text)
    return line if len(line) <= limit else line[: limit - 3] + "..."
