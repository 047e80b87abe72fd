"""Short texts for places, frames, ranks and counts, the same wherever a finding or an advice is worded."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from dynadiag.facts.lookups import process_of
from dynadiag.facts.user_frames import resume_line, source_function
from dynadiag.model.digest import rank_numbers
from dynadiag.model.location import Location
from dynadiag.model.run import Frame, Run

NO_RECORDS = "No compilation was recorded"
"""How the title begins of the finding that says so."""
_RUNS_SHOWN = 8
_OF_PACKAGES = frozenset({"__init__.py", "__main__.py"})
"""Files that every package has, so that their name alone says nothing."""
_PYTHON = re.compile(r"(?:^|/)(?:python|pypy)[\d.]*t?(?:\.exe)?$", re.IGNORECASE)


def plural(count: int, singular: str, many: str | None = None) -> str:
    """The count with its noun: "1 event", "3 events"."""
    return f"{count} {singular if count == 1 else many or singular + 's'}"


def times(count: int) -> str:
    """`once`, `2 times`."""
    return "once" if count == 1 else plural(count, "time")


def base_name(path: str) -> str:
    """The last part of a path of any system: logs come from foreign machines."""
    return path.replace("\\", "/").rstrip("/").rpartition("/")[2] or path


def short_place(location: Location | None) -> str:
    """`train.py:12`, or `train.py` without a line, or "an unknown place"; of a package's own file also the package: `app/__init__.py:3`."""
    if location is None:
        return "an unknown place"
    name = base_name(location.file)
    if name in _OF_PACKAGES and (package := base_name(location.file.replace("\\", "/").rstrip("/")[: -len(name) - 1])):
        name = f"{package}/{name}"
    return name if location.line is None else f"{name}:{location.line}"


def frame_text(frame: Frame | None) -> str:
    """`forward (model.py:12) [0/1]`: a frame as people name it, with torch's compile id."""
    if frame is None:
        return "an unknown frame"
    place = "" if frame.file is None else f" ({short_place(Location(frame.file, frame.line))})"
    line = resume_line(frame.name)
    if frame.name is None and frame.key.frame is None:
        return "a compiled function that is not named"
    name = frame.name or "an unnamed frame" if line is None else f"{source_function(frame.name)}, resumed at line {line}"
    return f"{name}{place}" if frame.key.frame is None and frame.key.autograd is None else f"{name}{place} [{frame.key.text}]"


def frame_location(frame: Frame) -> Location | None:
    """Where the frame's code begins, or None when the log did not say."""
    return None if frame.file is None else Location(frame.file, frame.line, frame.name)


def rank_text(run: Run, processes: Iterable[int]) -> str:
    """For example "ranks 0, 1" or "processes 4711, 4712"; empty when the run has only one process."""
    wanted = set(processes)
    chosen = [process for index in sorted(wanted) if (process := process_of(run, index)) is not None]
    if len(run.processes) < 2 or not chosen:
        return ""
    ranks = [process.rank for process in chosen]
    if None not in ranks:
        return f"rank{'s' if len(ranks) > 1 else ''} {rank_numbers(rank for rank in ranks if rank is not None)}"
    names = [str(process.pid if process.pid is not None else base_name(process.log)) for process in chosen]
    return f"process{'es' if len(names) > 1 else ''} {listed(names, limit=_RUNS_SHOWN)}"


def unique(values: Iterable[str]) -> tuple[str, ...]:
    """The values once each, in their first order."""
    return tuple(dict.fromkeys(values))


def listed(values: Sequence[str], *, limit: int = 3, between: str = ", ") -> str:
    """A list that stays short: "a, b, c and 4 more"."""
    shown = between.join(values[:limit])
    return shown if len(values) <= limit else f"{shown} and {len(values) - limit} more"


def script_arguments(run: Run) -> tuple[str, ...]:
    """The recorded script with its arguments, as verbs take them (`train.py --lr 1`, `-m pkg.train`); empty where it is not known."""
    command = run.info.command or ()
    target = command[1:] if command and _PYTHON.search(command[0].replace("\\", "/")) else ()
    target = target[1:] if target[:1] == ("--",) else target
    notebook = target and target[0].replace("\\", "/").endswith("/jupyter-execute")  # which no verb but `explain` and `check` takes
    return target if target and not notebook and (target[0] == "-m" or not target[0].startswith("-")) else ()


def notebook_of(run: Run) -> str | None:
    """The notebook that nbclient ran."""
    command = run.info.command or ()
    runs = any(base_name(word) in ("jupyter", "jupyter-execute") for word in command[:2])
    return next((word for word in command if word.endswith(".ipynb")), None) if runs else None
