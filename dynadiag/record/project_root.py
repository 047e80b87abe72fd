"""The folder of a program's project, and the program in it: the same from wherever it was started, and through whichever link."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import Any


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
