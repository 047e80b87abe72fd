"""`dynadiag parity`: what would go wrong on calls that a user could make, found by replaying each captured graph."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dynadiag.errors import NothingFoundError, UsageError
from dynadiag.trace.sources import is_recording
from dynadiag_cli.command_line import program_of, recording_named
from dynadiag_cli.options import LONGEST_S, REPORT, AsFormat, Force, InColor, Open, Out, Output

if TYPE_CHECKING:
    from dynadiag.record import Target

EXAMPLES = """Examples:

  dynadiag parity train.py --lr 3e-4

  dynadiag parity --emit-test tests/parity dynadiag-runs/latest
"""
_REAL_CALLS = 3


def parity(
    ctx: typer.Context,
    target: Annotated[
        list[str],
        typer.Argument(metavar="TARGET [ARGS]...", help="A run directory, a TORCH_TRACE log, RUN#g3; or a script and its arguments."),
    ],
    out: Out = None,
    force: Force = False,
    python: Annotated[
        str | None, typer.Option("--python", metavar="PATH", help="The Python interpreter for the script and the replay.")
    ] = None,
    tests: Annotated[Path | None, typer.Option("--emit-test", metavar="DIR", help="Write a pytest file for each difference.")] = None,
    load: Annotated[
        Path | None, typer.Option("--load", metavar="FILE", help="Run this Python file first, to register custom operators.")
    ] = None,
    budget_s: Annotated[
        float, typer.Option("--budget", metavar="S", min=1, max=LONGEST_S, help="Time limit for all graphs together, in seconds.")
    ] = 600.0,
    timeout_s: Annotated[
        float, typer.Option("--timeout", metavar="S", min=1, max=LONGEST_S, help="Time limit for one scenario of one graph, in seconds.")
    ] = 180.0,
    output_format: AsFormat = "text",
    output: Output = None,
    quiet: Annotated[
        bool,
        typer.Option("--quiet", "-q", rich_help_panel=REPORT, help="Print only the two verdicts: what happened, and what could happen."),
    ] = False,
    color: InColor = "auto",
    open_report: Open = False,
) -> None:
    """Replay each captured graph, compiled and uncompiled, over calls that a user could make, and say what would differ.

    A script is recorded first, its first calls compared with eager as `explain --parity` does. Each graph is called twice, with one
    tensor twice, with overlapping inputs, with its gradients and with a warm cache on disk; outputs, inputs after the call, shared
    memory and gradients are compared. Exit status: 0 nothing differs, 1 something does or the script failed, 2 usage or a
    replay that was killed, 3 no torch, 5 nothing was compiled or comparable.
    """
    from dynadiag.parity.session import OfflineOptions, replay_recording
    from dynadiag.parity.showing import document_of
    from dynadiag.record.directory import is_run_directory
    from dynadiag.record.guardian import guarded
    from dynadiag.torch_compat.versions import require, require_in
    from dynadiag_cli import showing
    from dynadiag_cli.progress import progress

    guarded()
    if python is None:
        require("parity")
    else:
        require_in(python, "parity")
    recording, graph = _named(ctx, target)
    # What may be refused comes before the program runs.
    if load is not None and not load.is_file():
        raise UsageError(f"--load {load}: no such file")
    if tests is not None:
        showing.make_folder(tests)
    showing.check_output(output)
    directory = recording
    if recording is None:
        directory = _recorded(program_of(ctx, target), out, force, python)
    assert directory is not None
    options = OfflineOptions(
        graphs=frozenset([graph]) if graph is not None else None,
        python=python or sys.executable,
        budget_s=budget_s,
        timeout_s=timeout_s,
        tests=tests,
        load=load,
    )
    failed = None if recording is not None else _failure(directory)
    with progress("replaying graphs") as advance:
        result = replay_recording(directory, options, advance=advance)
    if is_run_directory(directory):  # a foreign log stays as it is
        showing.keep_result(directory, "parity", result, lambda: document_of(result, showing.command_line()))
    default = sys.stderr if recording is None else sys.stdout
    showing.show(
        document_of(result), output_format, output, json=lambda: showing.json_of(result), default=default, color=color, quiet=quiet
    )
    if open_report:
        showing.open_page(directory, "parity.html")
    if result.wrong:
        raise typer.Exit(1)
    if result.broken:
        raise NothingFoundError("the replay did not come to its end: not all graphs were compared", exit_code=2)
    if failed is not None:
        print(f"dynadiag: the script {failed}, so what it would have compiled later was not compared", file=sys.stderr)
        raise typer.Exit(1)
    if not result.compared and not result.calls_compared:
        raise NothingFoundError(f"none of the {len(result.graphs)} graphs could be compared")


def _named(ctx: typer.Context, target: list[str]) -> tuple[Path | None, str | None]:
    """The recording and the graph wanted of it; None for a program to run."""
    path, mark, name = target[0].rpartition("#")
    if mark and not Path(target[0]).exists() and is_recording(Path(path)):
        return recording_named(ctx, [path, *target[1:]]), name
    return recording_named(ctx, target), None


def _recorded(program: Target, out: Path | None, force: bool, python: str | None) -> Path:
    from dynadiag import record

    done = record.record(program, record.RecordOptions(out=out, force=force, python=python, parity_calls=_REAL_CALLS))
    if done.directory is None:
        raise NothingFoundError("nothing was recorded", exit_code=2)
    if done.told_to_end is not None:
        print(f"dynadiag: ended by a signal: nothing was replayed; `dynadiag parity {done.directory}` does it", file=sys.stderr)
        raise typer.Exit(128 + done.told_to_end)
    return done.directory


def _failure(directory: Path) -> str | None:
    """How the script that was recorded failed; raises where that was before anything was compiled."""
    from dynadiag import trace
    from dynadiag.facts.program_end import failure_of, refuse_failed_start

    run = trace.load(directory)
    refuse_failed_start(run, "nothing was compared")
    return failure_of(run.info)
