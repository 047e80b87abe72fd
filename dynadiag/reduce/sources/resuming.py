"""Whether an interrupted reduction may go on: what is stored in its folder is run only where it is the text of the named script."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from dynadiag.errors import UnreadableInputError, UsageError
from dynadiag.files import read_small
from dynadiag.json_lines import value_of
from dynadiag.record import ownership
from dynadiag.record.directory import MARKER, clear, is_ours, is_run_directory

_LARGEST_BYTES = 64 << 20
_SETTING = "setting.json"


def can_resume(out: Path | None, say: Callable[[str], None]) -> bool:
    """Whether there is something to go on with; a folder of ours that was left before anything was captured is begun anew, which is said.

    Raises UsageError without a folder, UnreadableInputError for one that is not ours.
    """
    if out is None:
        raise UsageError("--resume needs --out DIR, the directory of the earlier run")
    if not is_run_directory(out):
        raise UnreadableInputError(f"{out} contains no reduction to resume")
    if not is_ours(out):
        # It holds compiled code and sources that going on would run.
        raise UnreadableInputError(
            f"{out} was not created here by you, or was moved: resuming would run what it contains; start without --resume"
        )
    if (out / "job.json").exists():
        return True
    if any(entry.name != MARKER and not entry.is_dir() for entry in out.iterdir()):  # a reduction has folders alone until then
        raise UnreadableInputError(f"{out} contains no reduction to resume, but another command's files")
    say(f"the earlier run in {out} ended before a failing graph was captured: starting over")
    clear(out)
    return False


def is_script_job(directory: Path) -> bool:
    """Whether the earlier run in this directory reduced a script."""
    try:
        return "script" in value_of(read_small(directory / "job.json", _LARGEST_BYTES))
    except (OSError, ValueError, TypeError):
        return False


def captures_to_resume(directory: Path) -> list[Path]:
    """The captured graphs of an earlier run in `directory`.

    A backend that is a function of the script was stored as its source. A folder may come from a stranger, so that source is run only where
    nobody changed it since this user captured it on this machine (`seals_of`). Raises UnreadableInputError if not, and for a damaged or
    foreign job.
    """
    try:
        job = value_of(read_small(directory / "job.json", _LARGEST_BYTES))
        folders = [Path(path) for path in job["captures"]]
        inside = all(
            folder.resolve().is_relative_to(directory.resolve()) and not any(file.is_symlink() for file in folder.iterdir())
            for folder in folders
        )
        changed = inside and any(_holds_source(folder) and not _is_as_captured(folder, job.get("seals")) for folder in folders)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UnreadableInputError(f"{directory} contains no reduction that can be resumed: {error}") from error
    if not inside:
        raise UnreadableInputError(f"{directory}/job.json refers to captured graphs outside {directory}: they are not read")
    if changed:
        raise UnreadableInputError(
            f"{directory} stores the source of a function (the backend, an option), and is not as you captured it on this machine: "
            "it is not run; start again without --resume"
        )
    return folders


def seals_of(captures: Sequence[Path]) -> dict[str, Any]:
    """What says later, in `job.json`, that these folders are as they were when they were captured, by this user on this machine."""
    return {str(folder): ownership.seal(folder) for folder in captures}


def _is_as_captured(folder: Path, seals: object) -> bool:
    said = seals.get(str(folder)) if isinstance(seals, dict) else None
    return ownership.is_sealed(folder, said, [folder / _SETTING])


def _holds_source(folder: Path) -> bool:
    """Whether loading the capture runs text that it holds: of the backend, or of a function that is an option."""
    state = value_of(read_small(folder / _SETTING, _LARGEST_BYTES))
    sources = (state.get("backend_source"), *(value.get("source") for _, value in state.get("configs", ()) if isinstance(value, dict)))
    return any(source is not None for source in sources)
