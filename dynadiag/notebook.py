"""`%load_ext dynadiag`: the cell magic `%%dynadiag`, which records a cell and shows the report below it."""

from __future__ import annotations

import argparse
import shlex
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

from dynadiag import api
from dynadiag.errors import DynadiagError, OutputError, UsageError
from dynadiag.model import Report
from dynadiag.record import observe
from dynadiag.record.directory import chosen_directory, new_directory

_FRAME = b'{"dynamo_start": '
_EVERY_S = 1.0
_BLOCK_BYTES = 1 << 20


class CellFailedError(Exception):
    """The cell raised, and Jupyter has shown with what: nothing more is printed, and the notebook stops here as it does without us."""

    def _render_traceback_(self) -> list[str]:
        return []


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"%%dynadiag: {message}; it takes --out DIR, --force, --parity N and --reset")


def register(shell: Any) -> None:
    """Give the shell the magic; what `%load_ext dynadiag` calls."""
    shell.register_magic_function(lambda line, cell: recorded_cell(shell, line, cell), magic_kind="cell", magic_name="dynadiag")


def recorded_cell(shell: Any, line: str, cell: str) -> Report | None:
    """The report on what the cell compiles, which Jupyter shows; None, and one line, where our part fails.

    The cell runs as it would alone. A cell that raises is an error after its report has been shown.
    """
    options = _options(line)
    if options is None:
        return None
    if options.reset:
        import torch

        torch.compiler.reset()
    try:
        directory = options.out or new_directory(Path.cwd(), "notebook")
    except OSError as error:
        raise OutputError(f"dynadiag-runs cannot be written: {error.strerror or error}: use %%dynadiag --out DIR") from None
    if options.out is not None:
        with suppress(OSError):  # of which `observe` says more
            chosen_directory(options.out, force=options.force)
    with _progress(directory), observe(directory, force=options.force or options.out is None, parity_calls=options.parity):
        done = shell.run_cell(cell)
    report = _report(directory, was_reset=options.reset)
    if done.success:
        return report
    if report is not None:
        from IPython.display import display

        display(report)
    raise CellFailedError


def _options(line: str) -> argparse.Namespace | None:
    parser = _Parser(prog="%%dynadiag", add_help=False)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--force", action="store_true")
    parser.add_argument("--reset", action="store_true")
    parser.add_argument("--parity", type=int, default=0)
    try:
        return parser.parse_args(shlex.split(line))
    except (UsageError, ValueError) as error:
        print(f"dynadiag: error: {error}; the cell was not run")
        raise CellFailedError from None


def _report(directory: Path, *, was_reset: bool) -> Report | None:
    try:
        report = api.load(directory)
    except DynadiagError as error:
        print(f"dynadiag: {error.message}")
        return None
    if not report.summary.frames:
        more = "" if was_reset else "; what an earlier cell compiled is seen with %%dynadiag --reset"
        print(f"dynadiag: nothing new was compiled in this cell{more}")
    print(f"dynadiag: recorded in {directory}; the whole page: !dynadiag explain {shlex.quote(str(directory))}")
    return report


@contextmanager
def _progress(directory: Path) -> Iterator[None]:
    """A line below the cell that says how much was compiled so far, and vanishes when the cell is done."""
    from IPython.display import HTML, display

    line = display(HTML("<i>dynadiag: recording</i>"), display_id=True)
    ended = threading.Event()
    counting = threading.Thread(target=_count, args=(directory, line, ended), name="dynadiag-progress", daemon=True)
    counting.start()
    try:
        yield
    finally:
        ended.set()
        counting.join()
        if line is not None:
            line.update(HTML(""))


def _count(directory: Path, line: Any, ended: threading.Event) -> None:
    from IPython.display import HTML

    began, frames, read, told = time.monotonic(), 0, {}, -1  # type: ignore[var-annotated]
    while not ended.wait(_EVERY_S):
        try:
            for log in directory.glob("*.log"):
                with log.open("rb") as stream:
                    stream.seek(read.get(log, 0))
                    while block := stream.read(_BLOCK_BYTES):
                        frames += block.count(_FRAME)
                    read[log] = stream.tell()
        except OSError:
            continue
        if line is not None and frames != told:
            line.update(
                HTML(f"<i>dynadiag: {frames} {'frame' if frames == 1 else 'frames'} compiled after {time.monotonic() - began:.0f} s</i>")
            )
            told = frames
