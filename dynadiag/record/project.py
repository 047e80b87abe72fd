"""The folder of a program's project, the program in it, and `[tool.dynadiag]` in the `pyproject.toml` of that folder or of one above it."""

from __future__ import annotations

import difflib
import os
import sys
import sysconfig
from collections.abc import Iterable, Sequence
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


def project_root(script: Path) -> Path:
    """The folder with `.git` around a script, else that with `pyproject.toml`, else its own; links are followed."""
    start = Path(os.path.realpath(script)).parent
    return _marked(start) or start


def describe_project(chosen: str | None, prefixes: Sequence[str]) -> dict[str, Any]:
    """Of this process, for the names of findings: `project`, what paths are called in the project (a folder, and all below it; the script),
    and `around`, the project of the current folder, where there is one that the script is not in.

    `chosen` is the root where the caller knows better: of a copy of a revision, which has no `.git`. `prefixes` are folders of libraries.
    """
    script = _script(prefixes)
    try:
        here: Path | None = Path.cwd()
    except OSError:
        here = None
    around = None if here is None else _marked(here)
    if script is None:
        root = Path(os.path.realpath(chosen)) if chosen is not None else around or here
        return {"project": {} if root is None else {str(root): ""}, "around": None}
    real = Path(os.path.realpath(script))
    root = Path(os.path.realpath(chosen)) if chosen is not None else project_root(script)
    names = {str(root): ""}
    if script != real:
        names[str(script)] = _name(real, root)
    folder = Path(os.path.realpath(script.parent))
    if script.parent != folder and folder == real.parent:
        names[str(script.parent)] = _name(folder, root)
        above = next((path for path in script.parent.parents if Path(os.path.realpath(path)) == root), None)
        names |= {} if above is None else {str(above): ""}
    return {"project": names, "around": None if around in (None, root) else str(around)}


def _name(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix() if path != root and path.is_relative_to(root) else ""


def _marked(folder: Path) -> Path | None:
    """The nearest folder with `.git`, else with `pyproject.toml`, from this one on."""
    above = (folder, *folder.parents)
    found = next((path for path in above if os.path.lexists(path / ".git")), None)
    return found or next((item for item in above if os.path.lexists(item / "pyproject.toml")), None)


def _script(prefixes: Sequence[str]) -> Path | None:
    """The file that this process runs, unless it is installed: a launcher, pytest, the command of a package."""
    installed = (*prefixes, sysconfig.get_path("scripts") or "")
    for name in ((getattr(sys, "argv", None) or [None])[0], getattr(sys.modules.get("__main__"), "__file__", None)):
        if isinstance(name, str) and name and os.path.isfile(name):  # noqa: PTH113 - any text
            path = os.path.abspath(name)  # noqa: PTH100 - links are kept
            if not any(path.startswith(f"{text}{os.sep}") for text in installed if text):
                return Path(path)
    return None
