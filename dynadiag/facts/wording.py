"""Short texts for places, frames, ranks, groups of ranks and counts, the same wherever a finding or an advice is worded."""

from __future__ import annotations

import re
from collections.abc import Iterable

from dynadiag.facts.lookups import process_of
from dynadiag.facts.user_frames import resume_line, source_function
from dynadiag.model.digest import FirstDifference, RankGroup, rank_numbers
from dynadiag.model.location import Location
from dynadiag.model.run import Frame, Run
from dynadiag.model.sentences import base_name, excerpt, listed, plural, short_place, unique

__all__ = [
    "NO_RECORDS",
    "base_name",
    "excerpt",
    "frame_location",
    "frame_ranks",
    "frame_text",
    "listed",
    "notebook_of",
    "plural",
    "rank_text",
    "script_arguments",
    "short_place",
    "times",
    "unique",
]
NO_RECORDS = "No compilation was recorded"
"""How the title begins of the finding that says so."""
_RUNS_SHOWN = 8
_PYTHON = re.compile(r"(?:^|/)(?:python|pypy)[\d.]*t?(?:\.exe)?$", re.IGNORECASE)


def times(count: int) -> str:
    """`once`, `2 times`."""
    return "once" if count == 1 else plural(count, "time")


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


def frame_ranks(run: Run, frames: Iterable[str | None]) -> str:
    """Which ranks or processes have these frames (by id), worded by `rank_text`."""
    found = (run.frame(frame) for frame in frames if frame is not None)
    return rank_text(run, {frame.key.process for frame in found if frame is not None})


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


# Words for groups of ranks and for where they first differ.

_DAY_S = 86_400


def group_in_words(group: RankGroup) -> str:
    """The ranks of a group: "rank 512", "ranks 0 to 511, 513 to 1023"."""
    return f"rank{'s' if len(group.ranks) > 1 else ''} {rank_numbers(group.ranks)}"


def difference_in_words(first: FirstDifference) -> str:
    """What happened, in which call, after how much that was the same, and what happened elsewhere."""
    here = _one_sentence(first.here) or "nothing more"
    there = _one_sentence(first.there) or ("the options of the others" if first.kind == "settings" else "nothing more")
    call = "" if first.call is None else f" in call {first.call:,}"
    if first.kind == "settings":
        return f"{here} instead of {there}"
    at = "" if not first.at else f", at {_clock(first.at)}"
    return f"{here}{call}, where the others have {there} (after {plural(first.before, 'equal event')}{at})"


def _one_sentence(text: str | None) -> str:
    """Torch's words of a guard that failed: "size mismatch at index 0. expected 8, actual 7"."""
    return (text or "").replace(". expected ", ": expected ")


def _clock(at: float) -> str:
    seconds = int(at % _DAY_S)
    return f"{seconds // 3600:02}:{seconds % 3600 // 60:02}:{seconds % 60:02}"
