"""New texts for files of a program that stay as they are: what is imported, run and shown in tracebacks is the new text."""

from __future__ import annotations

import importlib.machinery
import linecache
import os
from collections.abc import Mapping
from typing import Any


def install(texts: Mapping[str, str]) -> None:
    """From now on these files (absolute paths, links followed) are what the texts say, for whoever imports them or shows their lines."""
    for path, text in texts.items():
        # Without a time of change `linecache.checkcache` keeps the entry.
        linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)
    plain = importlib.machinery.SourceFileLoader.get_code

    def get_code(self: Any, fullname: str) -> Any:
        path = self.get_filename(fullname)
        text = texts.get(os.path.realpath(path))
        if text is None:
            return plain(self, fullname)
        if path not in linecache.cache:
            linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)
        # Not our own `from __future__ import annotations`.
        return compile(text, path, "exec", dont_inherit=True)

    importlib.machinery.SourceFileLoader.get_code = get_code  # type: ignore[method-assign]
