"""`dynadiag diff`: two runs compared, before and after a change, on two revisions, two torch versions, two machines."""

from __future__ import annotations

import contextlib
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dynadiag.errors import OutputError, UsageError
from dynadiag.trace.sources import is_recording, recording_at
from dynadiag_cli.options import RECORDING, REPORT, AsPageFormat, InColor, Output, Python, Timeout

if TYPE_CHECKING:
    from dynadiag.record import RecordOptions
    from dynadiag.revisions import Copy

EXAMPLES = """Examples:

  dynadiag diff dynadiag-runs/0001-train dynadiag-runs/0002-train

  dynadiag diff --git HEAD~1 -- train.py --lr 3e-4
"""


def diff(
    target: Annotated[
        list[str],
        typer.Argument(
            metavar="OLD NEW | SCRIPT [ARGS]...",
            help="Two run directories or logs; with --git a script, its arguments after `--`.",
        ),
    ],
    git: Annotated[
        str | None,
        typer.Option("--git", metavar="REV", help="Record SCRIPT as it is in this git revision, then as it is in the working tree."),
    ] = None,
    python: Python = None,
    old_python: Annotated[
        str | None,
        typer.Option(
            "--old-python",
            rich_help_panel=RECORDING,
            metavar="PATH",
            help="Record SCRIPT with this interpreter as the old run: what would another torch change? Alone or with --git.",
        ),
    ] = None,
    timeout_s: Timeout = None,
    output_format: AsPageFormat = "text",
    output: Output = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", rich_help_panel=REPORT, help="Print only the verdict and what cannot be compared.")
    ] = False,
    color: InColor = "auto",
) -> None:
    """Say what a newer run has gained and lost: graph breaks, recompiles, fallbacks, mutations, graphs, guards, compile time.

    Entries are matched by fingerprints, so that moved lines make no difference, and graphs by their structure, whatever their nodes are
    called. Exit status: 0 nothing is worse, 1 something is or the new program failed, 2 usage, a run that is unreadable
    or not complete, 3 no torch, 5 nothing was compiled in either.
    """
    from dynadiag.diff.compare import compare
    from dynadiag.diff.show import as_json, document_of
    from dynadiag_cli import showing

    showing.check_output(output)
    recorded = git is not None or old_python is not None
    old, new = _recorded(target, git, python, old_python, timeout_s) if recorded else _read(target)
    with showing.without_gc():
        result = compare(showing.read_report(old), showing.read_report(new), old_path=str(old), new_path=str(new))
    told = document_of(result, beside=output_format == "html")
    default = sys.stderr if recorded else sys.stdout
    showing.show(told, output_format, output, json=lambda: as_json(result), default=default, color=color, quiet=quiet)
    showing.flush_stdout()
    raise typer.Exit(result.exit_status)


def _read(target: list[str]) -> tuple[Path, Path]:
    from dynadiag.runs import refuse_damaged

    if len(target) != 2:
        raise UsageError(f"diff compares two runs or logs, but got {len(target)}; with --git REV or --old-python PATH it takes a script")
    if missing := [name for name in target if not is_recording(Path(name))]:
        raise UsageError(f"{missing[0]} is no run or log; to record a script of two revisions or interpreters use --git or --old-python")
    old, new = (recording_at(Path(text)) for text in target)
    for path in (old, new):
        refuse_damaged(path, "nothing was compared")
    return old, new


def _recorded(target: list[str], git: str | None, python: str | None, old_python: str | None, timeout_s: float | None) -> tuple[Path, Path]:
    """The script recorded twice: as it was or with the old interpreter, and as it is."""
    from dynadiag import record
    from dynadiag.record.project_root import project_root
    from dynadiag.revisions import extract, file_in
    from dynadiag.scratch import scratch

    if not Path(target[0]).is_file():
        raise UsageError(f"no such script: {target[0]}")
    if old_python is not None and shutil.which(old_python) is None:
        raise UsageError(f"--old-python: no such interpreter: {old_python}")
    options = record.RecordOptions(python=python, timeout_s=timeout_s, announce=True)
    before = record.RecordOptions(python=old_python or python, timeout_s=timeout_s, announce=True)
    if git is None:
        return _run(target, before, None, "old"), _run(target, options, None, "new")
    with scratch("git") as folder:
        copy = extract(git, folder, here=Path.cwd())
        file_in(copy, Path(target[0]), git)
        for line in copy.missing:
            print(f"dynadiag: --git {git}: {line}", file=sys.stderr)
        root = project_root(Path(target[0]))
        inside = root.relative_to(copy.top) if root.is_relative_to(copy.top) else Path()
        old = _run(target, replace(before, project=copy.files / inside), copy, "old")
    return old, _run(target, options, None, "new")


def _run(target: list[str], options: RecordOptions, copy: Copy | None, which: str) -> Path:
    """The run directory of one recording, below the current folder in any case."""
    from dynadiag import record
    from dynadiag.record.directory import new_directory
    from dynadiag_cli.recording import recorded

    try:
        directory = new_directory(Path.cwd(), f"{which}-{Path(target[0]).stem}")
    except OSError as error:
        raise OutputError(f"dynadiag-runs cannot be written: {error.strerror}") from None
    with contextlib.chdir(copy.here) if copy is not None else contextlib.nullcontext():
        done = recorded(record.Target(kind="script", argv=tuple(target)), replace(options, out=directory), otherwise="nothing was compared")
    if done.exit_status:
        print(
            f"dynadiag: the {which} script ended with exit status {done.exit_status}; what it compiled is still compared", file=sys.stderr
        )
    if copy is not None:
        _say_strays(directory, copy)
    return directory


def _say_strays(directory: Path, copy: Copy) -> None:
    """A package that is installed from the working tree is imported from there, not from the copy of the revision."""
    from dynadiag import trace

    files = {frame.file for frame in trace.load(directory).frames if frame.file is not None}
    strays = sorted(file for file in files if file.startswith(f"{copy.top}/") and "/site-packages/" not in file)
    if strays:
        shown = ", ".join(str(Path(stray).relative_to(copy.top)) for stray in strays[:3])
        print(f"dynadiag: imported from the working tree, not from the revision, so not compared: {shown}", file=sys.stderr)
