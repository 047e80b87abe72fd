"""Where the command starts: runs the command line and turns our errors into one line and an exit status."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from dynadiag.errors import DynadiagError
from dynadiag_cli import quick
from dynadiag_cli.streams import drop_stdout, mend_streams

if TYPE_CHECKING:
    from dynadiag_cli.app import app

__all__ = ["app", "main"]


def __getattr__(name: str) -> Any:
    """`app`, imported when somebody asks for it: Typer alone takes a third of the time in which a small log is read."""
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from dynadiag_cli.app import app

    return app


def main() -> NoReturn:
    """Run the command line and leave with its exit status; an error of ours is one line on stderr."""
    mend_streams()
    status: Any = 0
    try:
        try:
            _run(sys.argv[1:])
        except SystemExit as end:
            status = end.code or 0
        sys.stdout.flush()  # here, where a full disk can be told; Python would give 120 at exit
    except DynadiagError as error:
        _say(error.message, error.details)
        status = error.exit_code
    except KeyboardInterrupt:
        status = 130
    except BrokenPipeError:
        drop_stdout()  # the reader of our output went away
    except OSError as error:
        # A folder that cannot be written, a full disk: the line says which file.
        named = f": {error.filename}" if error.filename else ""
        _say(f"{error.strerror or error}{named}" if _has_folder() else "the current folder was deleted")
        drop_stdout()
        status = status or 2
    sys.exit(status)


def _has_folder() -> bool:
    try:
        Path.cwd()
    except OSError:
        return False
    return True


def _say(message: str, details: tuple[str, ...] = ()) -> None:
    from dynadiag_cli.progress import on_one_line

    print("dynadiag: error:", on_one_line(message), file=sys.stderr)
    for line in details:
        print(" ", on_one_line(line), file=sys.stderr)


def _run(words: list[str]) -> None:
    reading = None if any(name.endswith("_COMPLETE") for name in os.environ) else quick.reading(words)
    if reading is not None:
        from dynadiag_cli import showing

        showing.explain_recording(reading.path, out=None, force=False, options=showing.ShowOptions(**reading.options))
        return
    from dynadiag_cli.app import app

    app()
