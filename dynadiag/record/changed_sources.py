"""Which of the user's files are no longer as they were recorded; asked only for runs that were recorded on this machine."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from dynadiag.errors import DynadiagError
from dynadiag.files import read_small
from dynadiag.model.run import Run, SourceFunction

_MOST_FILES = 200
_LONGEST_FILE = 4 << 20
_MAY_BE_CUT = 20_000  # the recorder cuts longer ones (`torch_compat/trace/stacks.py`)


def changed_sources(run: Run) -> tuple[str, ...]:
    """The files in which a recorded function is not at its line as it was, in the order of the recording.

    A file that is gone from its folder is among them. One that cannot be read (too long, a link) or whose folder is gone is not: nothing
    is known of it.
    """
    by_file: dict[str, list[SourceFunction]] = defaultdict(list)
    for function in run.functions:
        if Path(function.file).is_absolute() and (function.file in by_file or len(by_file) < _MOST_FILES):
            by_file[function.file].append(function)
    return tuple(file for file, functions in by_file.items() if _changed(Path(file), functions))


def _changed(file: Path, functions: Iterable[SourceFunction]) -> bool:
    try:
        data = read_small(file, _LONGEST_FILE + 1)
    except FileNotFoundError:
        return file.parent.is_dir()  # cells of a notebook have names in a folder that never was
    except (OSError, ValueError, DynadiagError):
        return False
    if len(data) > _LONGEST_FILE:
        return False
    lines = data.decode("utf-8", "replace").replace("\r\n", "\n").split("\n")
    return any(not _stands_at(lines, function) for function in functions)


def _stands_at(lines: list[str], source_function: SourceFunction) -> bool:
    """Whether the recorded lines are there. Indentation is not compared (it was recorded dedented), nor the last line of a long text."""
    recorded = [line.strip() for line in source_function.text.rstrip("\n").split("\n")]
    begin = max(0, source_function.line - 1)
    there = [line.strip() for line in lines[begin : begin + len(recorded)]]
    if len(source_function.text) >= _MAY_BE_CUT:
        recorded, there = recorded[:-1], there[: len(recorded) - 1]
    return recorded == there
