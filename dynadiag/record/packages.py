"""Which folders hold installed packages outside of site-packages, by their `*.dist-info`: `pip install --target`, vendored, editable.

Runs in the user's process as well, on Python 3.9; it only lists folders and reads a few small files, and never raises.
"""

from __future__ import annotations

import csv
import itertools
import json
import os
import re
from collections.abc import Iterable, Iterator
from urllib.parse import unquote, urlparse

_MOST_BYTES = 4 << 20
_MOST_ENTRIES = 50_000
_MOST_IN_FOLDER = 10_000
_FOLDER_COUNTS = 20  # opening a folder takes as long as so many entries
_DEEPEST = 5
_NOT_SEARCHED = frozenset({"node_modules", "__pycache__", "site-packages", "dist-packages", "dynadiag-runs"})


def packages_in(folder: str) -> list[str]:
    """The packages and modules that a folder's `*.dist-info` lists: its other content is not installed."""
    found: dict[str, None] = {}
    for name in _names(folder):
        if name.endswith(".dist-info"):
            for top in _top_names(os.path.join(folder, name)):  # noqa: PTH118
                path = os.path.join(folder, top)  # noqa: PTH118
                if os.path.exists(path):  # noqa: PTH110
                    found[path] = None
    return list(found)


def packages_below(root: str) -> list[str]:
    """The same for a folder and the folders in it, as far as a bounded search gets; a virtual environment is not searched."""
    found: dict[str, None] = {}
    waiting = [(root, 0)]
    left = _MOST_ENTRIES
    while waiting and left > 0:
        folder, depth = waiting.pop(0)
        folders, is_environment, seen = _folders(folder)
        left -= seen + _FOLDER_COUNTS
        if is_environment:
            continue
        if any(name.endswith(".dist-info") for name in folders):
            found.update(dict.fromkeys(packages_in(folder)))
        for name in folders if depth < _DEEPEST else ():
            if not name.startswith(".") and name not in _NOT_SEARCHED and not name.endswith(".dist-info"):
                waiting.append((os.path.join(folder, name), depth + 1))  # noqa: PTH118
    return list(found)


def _folders(folder: str) -> tuple[list[str], bool, int]:
    """The folders in a folder, whether it is a virtual environment, and how many entries were looked at: data sets have millions."""
    found: list[str] = []
    seen, environment = 0, False
    try:
        with os.scandir(folder) as entries:
            for entry in itertools.islice(entries, _MOST_IN_FOLDER):
                seen += 1
                environment = environment or entry.name == "pyvenv.cfg"
                if entry.is_dir(follow_symlinks=False):
                    found.append(entry.name)
    except (OSError, ValueError):
        pass
    return sorted(found), environment, seen


def editable_packages(folders: Iterable[str], here: Iterable[str]) -> list[str]:
    """The project folders of editable installs, but for those that one of the places `here` lies in: who runs it there works on it."""
    infos = (os.path.join(folder, name) for folder in folders for name in _names(folder) if name.endswith(".dist-info"))  # noqa: PTH118
    return apart_from(here, [root for root in map(_editable, infos) if root is not None])


def apart_from(here: Iterable[str], paths: Iterable[str]) -> list[str]:
    """The paths, each once, without those that one of the places `here` lies in: the program that is run is nobody's library."""
    places = [os.path.abspath(place) for place in here if place]  # noqa: PTH100
    return [path for path in dict.fromkeys(paths) if not any(place == path or place.startswith(path + os.sep) for place in places)]


def _editable(dist_info: str) -> str | None:
    """The folder of an editable install, by PEP 610."""
    try:
        said = json.loads(_text(os.path.join(dist_info, "direct_url.json")) or "null")  # noqa: PTH118
        editable = isinstance(said, dict) and isinstance(said.get("dir_info"), dict) and said["dir_info"].get("editable") is True
        url = urlparse(str(said.get("url"))) if editable else None
    except (ValueError, RecursionError):
        return None
    if url is None or url.scheme != "file":
        return None
    root = unquote(url.path).rstrip("/")
    return root if os.path.isabs(root) else None  # noqa: PTH117


def _top_names(dist_info: str) -> Iterator[str]:
    """The first parts of the installed paths; the package's own name where no list of them is there."""
    record = _text(os.path.join(dist_info, "RECORD"))  # noqa: PTH118
    if record is None:
        yield re.sub(r"-[^-]*\.dist-info$", "", os.path.basename(dist_info))  # noqa: PTH119
        return
    try:
        paths = [row[0] for row in csv.reader(record.splitlines()) if row]
    except csv.Error:
        return
    for top in dict.fromkeys(path.split("/")[0] for path in paths):
        if top not in ("", ".", "..", "__pycache__", "bin") and not top.endswith((".dist-info", ".pth")):
            yield top


def _names(folder: str) -> list[str]:
    try:
        with os.scandir(folder or ".") as entries:
            return sorted(entry.name for entry in itertools.islice(entries, _MOST_IN_FOLDER))
    except (OSError, ValueError):
        return []


def _text(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            return file.read(_MOST_BYTES)
    except (OSError, ValueError):
        return None
