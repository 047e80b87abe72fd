"""Recording a program for a verb that does something with the recording, and not with the program's exit status."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import typer

from dynadiag.errors import NothingFoundError

if TYPE_CHECKING:
    from pathlib import Path

    from dynadiag.record import RecordOptions, RecordResult, Target


def recorded(program: Target, options: RecordOptions, *, otherwise: str) -> RecordResult:
    """Run a program to its end, and analyse its graphs; the result has a directory.

    Raises NothingFoundError where nothing could be recorded. Ends our own process where somebody interrupted it: `otherwise` is what was
    not done then.
    """
    from dynadiag import record

    done = record.record(program, options)
    if done.directory is None:
        raise NothingFoundError("nothing was recorded", exit_code=2)
    if done.told_to_end is not None or done.interrupted:
        print(f"dynadiag: interrupted: {otherwise}; the recording is in {done.directory}", file=sys.stderr)
        raise typer.Exit(130 if done.told_to_end is None else 128 + done.told_to_end)
    probed(done.directory)
    return done


def probed(directory: Path) -> None:
    """Find what the graphs of a run mutate, in another process; what goes wrong there is one line and nothing more."""
    from dynadiag.record.directory import seal_again
    from dynadiag.record.probe import probe_run
    from dynadiag_cli.progress import progress

    with progress("analysing the graphs") as advance:
        why_not = probe_run(directory, advance=advance)
    seal_again(directory)
    if why_not is not None:
        print(f"dynadiag: {why_not}", file=sys.stderr)
