"""`[tool.dynadiag]` in the `pyproject.toml` of the program's folder or of a folder above it; of its settings what counts as own code."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dynadiag.errors import UsageError
from dynadiag.files import read_small
from dynadiag.record import packages
from dynadiag.record.environment import working_directory

_MOST_BYTES = 1 << 20
_MOST_FOLDERS = 64
_MOST_LIBRARIES = 500
_TABLE = "[tool.dynadiag]"
_SETTINGS = ("own", "check")


@dataclass(frozen=True)
class Project:
    """What counts as the user's own code (`own`, empty for the usual rules), and the packages that lie in the project (`libraries`)."""

    own: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()


def project_of(script: Path | None) -> Project:
    """The project that a script lies in; that of the current folder for what is started in another way. Raises UsageError."""
    here = working_directory()
    if script is None and here is None:
        return Project()
    start = script.parent if script is not None else Path(str(here))
    below = packages.packages_below(str(_project_folder(start)))
    return Project(own_folders(start), tuple(packages.apart_from([str(script or "")], below))[:_MOST_LIBRARIES])


def own_folders(start: Path) -> tuple[str, ...]:
    """The folders that `own` names, as absolute paths, also with links followed; empty where nothing is set.

    Raises UsageError for a setting that cannot be meant.
    """
    found = settings_of(start)
    return () if found is None else _own(*found)


def settings_of(start: Path) -> tuple[dict[str, Any], Path] | None:
    """The nearest table of ours above a folder, and the folder that its file is in. Raises UsageError for a setting that there is not."""
    for folder in (start, *start.parents):
        settings = _settings(folder / "pyproject.toml")
        if settings is not None:
            refuse_unknown(settings, _SETTINGS, f"{folder / 'pyproject.toml'}: {_TABLE}")
            return settings, folder
    return None


def refuse_unknown(settings: Iterable[str], known: Iterable[str], where: str) -> None:
    """Raise UsageError for a name that is not known, with the nearest one that is."""
    known = sorted(known)
    for name in sorted(set(settings) - set(known)):
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
        meant = f"did you mean {near[0]!r}?" if near else f"it has: {', '.join(known)}"
        raise UsageError(f"{where} has no setting {name!r}; {meant}")


def _project_folder(start: Path) -> Path:
    """The folder of the nearest `pyproject.toml`, else `start`."""
    return next((folder for folder in (start, *start.parents) if (folder / "pyproject.toml").is_file()), start)


def _settings(file: Path) -> dict[str, Any] | None:
    """Our table; None where there is none, and for a file that cannot be read and does not speak of us."""
    try:
        text = read_small(file, _MOST_BYTES).decode()
    except (OSError, ValueError):
        return None
    if "dynadiag" not in text or sys.version_info < (3, 11):  # without tomllib; only `observe` gets here
        return None
    import tomllib

    try:
        tool = tomllib.loads(text).get("tool", {})
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageError(f"{file} is not valid TOML: {error}") from None
    found = tool.get("dynadiag") if isinstance(tool, dict) else None
    if found is not None and not isinstance(found, dict):
        raise UsageError(f"{file}: {_TABLE} has to be a table")
    return found


def _own(settings: dict[str, Any], folder: Path) -> tuple[str, ...]:
    where = f"{folder / 'pyproject.toml'}: {_TABLE}"
    named = settings.get("own", [])
    if (
        not isinstance(named, list)
        or not all(isinstance(element, str) and element.strip() for element in named)
        or len(named) > _MOST_FOLDERS
    ):
        raise UsageError(f'{where}: own has to be a list of folders, such as own = ["src"]')
    found: dict[str, None] = {}
    for item in named:
        path = folder / item
        if not path.is_dir():
            raise UsageError(f"{where}: own names {item!r}, which is no folder in {folder}")
        found[str(path.absolute())] = None
        found[str(path.resolve())] = None
    return tuple(found)
