"""New texts for files of a program that stay as they are: what is imported, run and shown in tracebacks is the new text."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import linecache
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_texts: dict[str, str] = {}


def text_of(path: str) -> str | None:
    """The new text of a file; None where it is as it stands."""
    return _texts.get(os.path.realpath(path))


def install(texts: Mapping[str, str]) -> None:
    """From now on these files (absolute paths, links followed) are what the texts say, for whoever imports them or shows their lines."""
    _texts.update(texts)
    for path, text in texts.items():
        # Without a time of change `linecache.checkcache` keeps the entry.
        linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)
    plain = importlib.machinery.SourceFileLoader.get_code

    def get_code(self: Any, fullname: str) -> Any:
        path = self.get_filename(fullname)
        text = text_of(path)
        if text is None:
            return plain(self, fullname)
        if path not in linecache.cache:
            linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)
        # Not our own `from __future__ import annotations`.
        return compile(text, path, "exec", dont_inherit=True)

    importlib.machinery.SourceFileLoader.get_code = get_code  # type: ignore[method-assign]
    sys.meta_path.insert(0, _NewFiles({path for path in map(Path, texts) if not path.exists()}))


class _NewFiles(importlib.abc.MetaPathFinder):
    """Finds modules that are only in the texts, beside the script or in the folder of now."""

    def __init__(self, paths: set[Path]) -> None:
        self._files = {path.stem: str(path) for path in paths}

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        file = self._files.get(fullname) if path is None else None
        loader = importlib.machinery.SourceFileLoader(fullname, file) if file is not None else None
        return None if loader is None else importlib.util.spec_from_file_location(fullname, file, loader=loader)
