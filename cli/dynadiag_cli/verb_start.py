"""`dynadiag start`: why the second start of a program compiles again, and what compiles after its warm-up."""

from __future__ import annotations

import shutil
import sys
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dynadiag.errors import NothingFoundError, OutputError, UsageError
from dynadiag.trace.sources import is_recording, recording_at
from dynadiag_cli.command_line import MODE, program_of
from dynadiag_cli.options import RECORDING, AsPageFormat, InColor, Output, Python, Quiet, StopWhenStable, Timeout

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dynadiag.model.report import Report
    from dynadiag.record import RecordOptions, Target
    from dynadiag.start.result import StartResult

EXAMPLES = """Examples:

  dynadiag start --cure train.py --lr 3e-4

  dynadiag start host-a/trace.log host-b/trace.log
"""


def start(
    ctx: typer.Context,
    target: Annotated[
        list[str],
        typer.Argument(
            metavar="SCRIPT [ARGS]... | OLD NEW",
            help="A script with its arguments, `-m MODULE [ARGS]` or `-- torchrun ... train.py`; or two run directories or logs.",
        ),
    ],
    runs: Annotated[
        int,
        typer.Option(
            "--runs",
            rich_help_panel=RECORDING,
            metavar="N",
            min=2,
            max=20,
            help="Start the script N times; the last two starts are compared.",
        ),
    ] = 2,
    cache: Annotated[
        Path | None,
        typer.Option(
            "--cache",
            rich_help_panel=RECORDING,
            metavar="DIR",
            help="Use this cache folder; the starts add entries to it [default: a new folder].",
        ),
    ] = None,
    keep_cache: Annotated[
        bool, typer.Option("--keep-cache", rich_help_panel=RECORDING, help="Do not delete the new cache folder, and print its path.")
    ] = False,
    cure: Annotated[
        bool,
        typer.Option("--cure", rich_help_panel=RECORDING, help="Try the changes for its causes: start the script twice more with them."),
    ] = False,
    warm_up: Annotated[
        int | None,
        typer.Option("--warm-up", metavar="K", min=0, help="Also report what compiles after the first K calls of compiled functions."),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Write start.json, .md and .html into DIR.")] = None,
    python: Python = None,
    timeout_s: Timeout = None,
    stop_when_stable_s: StopWhenStable = None,
    output_format: AsPageFormat = "text",
    output: Output = None,
    quiet: Quiet = False,
    color: InColor = "auto",
) -> None:
    """Say why the second start of a program compiles again: which cache missed, and because of what in the program.

    A script is started twice on one new cache folder; two recordings are only compared. For each compilation that did not come from the
    caches of AOTAutograd and Inductor, the cause is named with its line: a number, an operator, an input, an option, a setting, a custom
    pass, the cache folder, the order of a set. With --cure the script is started twice more with changes for these, and its files stay as
    they are. Exit status: 0 everything came from the caches; 1 something compiled again, or after the
    warm-up, or the program failed; 2 usage, or a run that is not complete; 3 no torch; 5 nothing was compiled, or no cache was used.
    """
    from dynadiag.start.show import as_json, document_of
    from dynadiag_cli import showing

    showing.check_output(output)
    if out is not None and out.exists() and not out.is_dir():
        raise OutputError(f"{out} is not a folder")
    recorded = not _are_recordings(ctx, target)
    if cure and (not recorded or python is not None):
        raise UsageError("--cure starts a program with the Python of dynadiag: it takes no recordings and no --python")
    if recorded:
        from dynadiag.record import RecordOptions

        options = RecordOptions(
            python=python,
            timeout_s=timeout_s,
            stop_when_stable_s=stop_when_stable_s,
            announce=not quiet and output_format == "text",
            key_parts=True,
        )
        with _cache_folder(cache, keep=keep_cache) as folder:
            result = _started(ctx, target, options, folder, runs, warm_up, cure=cure)
    else:
        result = _compared(target, warm_up)
    if out is not None:
        _write(out, result)
    told = document_of(result, showing.command_line())
    default = sys.stderr if recorded else sys.stdout
    showing.show(told, output_format, output, json=lambda: as_json(result), default=default, color=color, quiet=quiet)
    showing.flush_stdout()
    raise typer.Exit(result.exit_status)


def _are_recordings(ctx: typer.Context, target: list[str]) -> bool:
    """Whether two recordings are named; one, or one beside something else, is a mistake."""
    if ctx.meta.get(MODE, "path") != "path" or not is_recording(Path(target[0])):
        return False
    if len(target) != 2:
        raise UsageError(f"start compares two runs or logs, but got {len(target)}; to start a program twice name its script")
    if not is_recording(Path(target[1])):
        raise UsageError(f"{target[1]} is no run or log")
    return True


@contextmanager
def _cache_folder(given: Path | None, *, keep: bool) -> Iterator[Path]:
    """The folder of all starts: the user's, or a new one that is deleted afterwards."""
    from dynadiag.scratch import make_scratch

    if given is not None:
        try:
            given.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(f"--cache {given}: cannot be created: {error.strerror or error}") from None
        print(f"dynadiag: the starts use the cache folder {given}, and add to it", file=sys.stderr)
        yield given.absolute()
        return
    folder = make_scratch("start")
    try:
        yield folder / "cache"
        if keep:
            kept = Path("dynadiag-runs", f"cache-{folder.name}").absolute()
            shutil.move(folder / "cache", kept)
            print(f"dynadiag: the cache folder is {kept}", file=sys.stderr)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _started(
    ctx: typer.Context, target: list[str], options: RecordOptions, cache: Path, runs: int, warm_up: int | None, *, cure: bool
) -> StartResult:
    """The program started, and once more with the hash seed of the first start where something is not warm by itself."""
    from dynadiag import trace
    from dynadiag.start.compare import compare
    from dynadiag.start.session import Session, has_random_hashes
    from dynadiag.start.sources import own_sources

    program = program_of(ctx, target)
    name = Path(target[0]).stem if program.kind != "command" else "command"

    def run(which: str, settings: RecordOptions, what: Target) -> Path:
        from dynadiag import record
        from dynadiag.record.directory import new_directory

        try:
            directory = new_directory(Path.cwd(), f"{which}-{name}")
        except OSError as error:
            raise OutputError(f"dynadiag-runs cannot be written: {error.strerror}") from None
        done = record.record(what, replace(settings, out=directory))
        if done.directory is None:
            raise NothingFoundError("nothing was recorded", exit_code=2)
        if done.told_to_end is not None or done.interrupted:
            print(f"dynadiag: interrupted: nothing was compared; the recording is in {done.directory}", file=sys.stderr)
            raise typer.Exit(130 if done.told_to_end is None else 128 + done.told_to_end)
        return done.directory

    session = Session(options, cache, run, program)
    paths = session.starts(runs)
    old, new = (_report(path) for path in paths[-2:])

    def compared(same_seed: Path | None) -> StartResult:
        return compare(
            old,
            new,
            old_path=_shown(paths[-2]),
            new_path=_shown(paths[-1]),
            sources=own_sources(new.run),
            same_seed=None if same_seed is None else trace.load(same_seed),
            same_program=True,
            warm_up=warm_up,
            cache=str(cache),
        )

    result = compared(None)
    if has_random_hashes() and any(cause.kind == "per_process" for cause, _ in result.causes()):
        result = compared(session.start("same-seed", seed=runs - 1))
    if not cure:
        return result
    from dynadiag.start.session import can_be_edited
    from dynadiag.start.trial import try_changes, try_one_block

    sources = own_sources(new.run) if can_be_edited(program) else ()
    return replace(
        result,
        cured=try_changes(session, result, sources, _report, _shown) if result.missed or result.late else None,
        one_block=try_one_block(session, old.run, sources, _report, _shown),
    )


def _compared(target: list[str], warm_up: int | None) -> StartResult:
    from dynadiag.runs import recorded_here, refuse_damaged
    from dynadiag.start.compare import compare
    from dynadiag.start.sources import own_sources

    paths = [recording_at(Path(text)) for text in target]
    for path in paths:
        refuse_damaged(path, "nothing was compared")
    old, new = (_report(path) for path in paths)
    sources = own_sources(new.run) if recorded_here(paths[1]) else ()
    return compare(old, new, old_path=_shown(paths[0]), new_path=_shown(paths[1]), sources=sources, warm_up=warm_up)


def _report(path: Path) -> Report:
    from dynadiag_cli import showing

    return showing.read_report(path)


def _shown(path: Path) -> str:
    """The folder as it is typed here."""
    return str(path.relative_to(Path.cwd())) if path.is_absolute() and path.is_relative_to(Path.cwd()) else str(path)


def _write(out: Path, result: StartResult) -> None:
    from dynadiag.start.show import as_json, document_of
    from dynadiag_cli.showing import command_line, write_page, write_result

    write_result(out, "start", as_json(result), document_of(result), make=True)
    write_page(lambda: document_of(result, command_line()), out, "start.html")
