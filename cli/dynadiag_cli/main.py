"""Where the command starts: runs the command line and turns our errors into one line and an exit status."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, NoReturn

from dynadiag.errors import DynadiagError
from dynadiag_cli import quick

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
    try:
        _run(sys.argv[1:])
    except DynadiagError as error:
        _say(error.message)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        # The reader of our output went away; Python would complain again when it flushes stdout at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:
        # A folder that cannot be written, a full disk: the line says which file.
        _say(f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}")
        sys.exit(2)
    sys.exit(0)


def _say(message: str) -> None:
    from dynadiag_cli.progress import on_one_line

    print("dynadiag: error:", on_one_line(message), file=sys.stderr)


def _run(words: list[str]) -> None:
    reading = None if any(name.endswith("_COMPLETE") for name in os.environ) else quick.reading(words)
    if reading is not None:
        from dynadiag_cli import showing

        showing.explain_recording(reading.path, out=None, force=False, options=showing.ShowOptions(**reading.options))
        return
    from dynadiag_cli.app import app

    app()
