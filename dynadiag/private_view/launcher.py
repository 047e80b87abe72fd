"""Starts a command in a view, and ends as it ends:

python -I -S launcher.py VIEW COMMAND...     runs it
python -I -S launcher.py --probe VIEW        prints as JSON why there is no such view here: `overlay` and `watch`, null where there is
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

_DEFAULT: Final = (signal.SIGPIPE, signal.SIGXFSZ)
"""Ignored by Python, and so by what it becomes (`subprocess`, `restore_signals`)."""


def main(arguments: Sequence[str]) -> int:
    """The exit status."""
    sys.path.insert(0, __file__.rpartition("/dynadiag/")[0])
    from dynadiag.private_view.view import enter, loads
    from dynadiag.process_identity import STARTER

    if arguments[0] == "--probe":
        print(json.dumps(_probe(arguments[1])))
        return 0
    view, command = loads(arguments[0]), list(arguments[1:])
    interrupt = signal.getsignal(signal.SIGINT)
    ended = enter(view)
    if ended is not None:
        return ended.follow()
    if interrupt is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    for number in _DEFAULT:
        signal.signal(number, signal.SIG_DFL)
    os.environ[STARTER] = str(os.getppid())
    try:
        os.execvp(command[0], command)
    except OSError as error:
        print(f"dynadiag: cannot start {command[0]}: {error.strerror}", file=sys.stderr)
        os._exit(127 if isinstance(error, FileNotFoundError) else 126)


def _probe(text: str) -> dict[str, str | None]:
    from dynadiag.private_view import overlay
    from dynadiag.private_view.kernel import install_filter
    from dynadiag.private_view.recovery import remove_tree
    from dynadiag.private_view.view import enter, loads

    view = loads(text)
    store = Path(tempfile.mkdtemp(prefix="probe-", dir=view.undo))

    def mount() -> None:
        overlay.enter(view.roots, view.passed, store / "upper", check=True)
        for root in view.roots:
            tempfile.TemporaryFile(dir=root).close()

    def watch() -> None:
        """All of it, for a process that makes one file."""
        install_filter()

    def attend() -> None:
        ended = enter(replace(view, kind="undo", roots=(str(store),), passed=(), touched=os.devnull))
        name = store / "written"
        if ended is None:
            name.write_text("")
            os._exit(0)
        if ended.follow() != 0 or name.exists():
            raise OSError(0, "what a process writes is not seen")

    found = {"overlay": _tried(mount), "watch": _tried(watch) or _tried(attend)}
    remove_tree(store)
    return found


def _tried(step: Callable[[], None]) -> str | None:
    """Why it is not possible, tried in a child."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            step()
        except Exception as error:  # noqa: BLE001 - whatever this machine lacks
            os.write(writing, str(getattr(error, "strerror", None) or error or type(error).__name__).encode() or b"?")
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as said:
        why = said.read().decode("utf-8", "replace")
    status = os.waitpid(pid, 0)[1]
    return why or (None if status == 0 else f"status {status}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
