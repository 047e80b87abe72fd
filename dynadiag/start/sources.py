"""The program's own files as they were when it ran: read only for runs that this user recorded on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from dynadiag.errors import DynadiagError
from dynadiag.facts.user_frames import is_own_file, project_path
from dynadiag.files import read_small
from dynadiag.model.run import Run
from dynadiag.start.setting_lines import Source

_MOST_FILES = 50
_LONGEST_FILE = 1 << 20


def own_sources(run: Run) -> tuple[Source, ...]:
    """The script and the files of what was compiled, as far as they have not been written since the run began."""
    began = _time(run.info.started_at)
    if began is None:
        return ()
    found: list[Source] = []
    for file in dict.fromkeys(_files(run)):
        if len(found) >= _MOST_FILES:
            break
        try:
            if file.stat().st_mtime > began or file.is_symlink():
                continue
            data = read_small(file, _LONGEST_FILE)
        except (OSError, ValueError, DynadiagError):
            continue
        found.append(Source(project_path(str(file), run), data.decode("utf-8", "replace"), file.resolve()))
    return tuple(found)


def _files(run: Run) -> Iterator[Path]:
    cwd = run.info.cwd
    for process in run.processes:
        program = (process.argv or ("",))[0]
        if program.endswith(".py") and (cwd is not None or Path(program).is_absolute()):
            yield Path(cwd or "/", program)
    for call in run.compile_calls:
        if call.location is not None and is_own_file(call.location.file, run) and Path(call.location.file).is_absolute():
            yield Path(call.location.file)
    for frame in run.frames:
        if frame.file is not None and is_own_file(frame.file, run) and Path(frame.file).is_absolute():
            yield Path(frame.file)


def _time(text: str | None) -> float | None:
    try:
        return None if text is None else datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None
