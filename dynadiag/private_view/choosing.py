"""Which view runs of a program get on this machine, and for which folders."""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from dynadiag.errors import NoViewError, OutputError, UsageError
from dynadiag.private_view.consent import not_written
from dynadiag.private_view.recovery import bases, discard, keep_dead
from dynadiag.private_view.view import Kind, View
from dynadiag.scratch import UNDO, make_scratch

VARIABLE: Final = "DYNADIAG_FILES"
"""The environment variable that chooses the kind of view, where the first that works does not do: overlay, undo."""
_MOST_BYTES: Final = 16 << 30
_PROBE_S: Final = 60.0
_LAUNCHER: Final = Path(__file__).with_name("launcher.py")


def roots_of(project: Path | None, folder: Path) -> tuple[str, ...]:
    """The folders that a program writes to: its project, and the one that it runs in."""
    found = {os.path.realpath(path) for path in (folder, project) if path is not None}
    return tuple(sorted(name for name in found if not any(name != other and Path(name).is_relative_to(other) for other in found)))


@contextmanager
def private_view(roots: Sequence[str], *, passed: Sequence[Path] = (), kind: Kind | None = None) -> Iterator[View]:
    """A view in which runs may write below `roots`, for as long as the context lasts; below `passed` and in our own folders for real.

    Raises NoViewError where the machine allows no view, and UsageError where another dynadiag will put files below `roots` back.
    """
    for folder, changed in keep_dead():
        named = ", ".join(changed[:3]) + (f" and {len(changed) - 3} more" if len(changed) > 3 else "")
        left = f"earlier runs were killed, and {named} may be as they left it; what was there is in {folder}"
        print(f"dynadiag: {left}: `dynadiag runs --put-back {shlex.quote(str(folder))}` puts it back", file=sys.stderr)
    undo, view = _chosen(roots, passed, kind)
    with ExitStack() as stack:
        stack.callback(lambda: warn_of(discard(undo)))
        if view.kind == "undo":
            for root in view.roots:
                stack.enter_context(_alone_in(root))
        yield view
        if (why := not_written(view)) is not None:
            print(f"dynadiag: {why}", file=sys.stderr)


_held: Counter[str] = Counter()


@contextmanager
def _alone_in(root: str) -> Iterator[None]:
    """No other dynadiag runs programs in a folder of which files are put back, in one around it or below; this one may several times.

    Raises UsageError.
    """
    with ExitStack() as stack:
        if not _held[root]:
            for around in reversed(Path(root).parents):
                if not _held[str(around)]:
                    _lock(stack, str(around), fcntl.LOCK_SH)
            _lock(stack, root, fcntl.LOCK_EX)
        _held[root] += 1
        try:
            yield
        finally:
            _held[root] -= 1


def _lock(stack: ExitStack, folder: str, kind: int) -> None:
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except PermissionError:
        if kind == fcntl.LOCK_SH:  # a folder that we may pass through, and not read
            return
        raise
    stack.callback(os.close, descriptor)
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise UsageError(f"another dynadiag runs a program in {folder} and puts its files back: wait until it has ended") from error


def warn_of(failed: Sequence[str]) -> None:
    """Say which files could not be put back."""
    for path in failed[:5]:
        print(
            f"dynadiag: {path} could not be put back; a copy of what it was is in {tempfile.gettempdir()}/dynadiag-{UNDO}-*",
            file=sys.stderr,
        )


def _chosen(roots: Sequence[str], passed: Sequence[Path], kind: Kind | None) -> tuple[Path, View]:
    wanted = kind or os.environ.get(VARIABLE) or None
    if wanted not in (None, "overlay", "undo"):
        raise UsageError(f"{VARIABLE}={wanted}: it is overlay or undo")
    why: dict[str, str] = {}
    for base in bases():
        undo = _made(base)
        view = View(
            kind="overlay",
            roots=tuple(roots),
            passed=tuple(os.path.realpath(path) for path in (undo, *passed)),
            undo=str(undo),
            touched=str(undo / "touched"),
            limit_bytes=min(_MOST_BYTES, shutil.disk_usage(undo).free // 4),
        )
        found = _probed(view)
        if found["watch"] is None and (wanted == "undo" or (wanted is None and base == bases()[-1] and found["overlay"])):
            return undo, replace(view, kind="undo")
        if found["overlay"] is None and wanted != "undo":
            return undo, replace(view, watched=found["watch"] is None)
        why = {name: text for name, text in found.items() if text is not None}
        discard(undo)
    raise NoViewError(
        f"what runs write cannot be kept apart from your files on this machine (overlay: {why.get('overlay', 'not asked for')}; "
        f"undo: {why.get('watch', 'not asked for')})"
    )


def _made(base: Path) -> Path:
    try:
        return make_scratch(UNDO, base).resolve()
    except OSError as error:
        raise OutputError(f"cannot create a folder in {base}: {error.strerror or error}") from error


def _probed(view: View) -> dict[str, str | None]:
    try:
        done = subprocess.run(
            command_in(view, ["--probe"]), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_PROBE_S, check=False
        )
        found = json.loads(done.stdout)
        return {"overlay": found["overlay"], "watch": found["watch"]}
    except (OSError, ValueError, KeyError, subprocess.TimeoutExpired) as error:
        why = (
            str(error)
            if isinstance(error, (OSError, subprocess.TimeoutExpired))
            else (done.stderr.strip().splitlines() or ["no reply"])[-1]
        )
        return {"overlay": why, "watch": why}


def command_in(view: View, command: Sequence[str]) -> list[str]:
    """The command that runs another one in a view."""
    probe = list(command) == ["--probe"]
    return [sys.executable, "-I", "-S", str(_LAUNCHER), *(["--probe", view.dumps()] if probe else [view.dumps(), *command])]
