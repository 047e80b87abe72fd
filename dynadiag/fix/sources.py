"""The texts of the files that may be changed: those of the script's project, and of installed libraries for the patch module."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from dynadiag.errors import EditError
from dynadiag.facts.user_frames import is_own_file
from dynadiag.files import read_small
from dynadiag.model.report import Report
from dynadiag.record.project_root import project_root

_LONGEST_FILE = 4 << 20
BOM: Final = "\ufeff"


class Sources:
    """The texts of files as they are now, read once, by real path; `modules` are the dotted names of those that are installed.

    `texts` are those of a changed program, in the place of what its files hold.
    """

    def __init__(self, report: Report, script: Path, texts: Mapping[str, str] | None = None) -> None:
        self.script = str(script.resolve())
        self.root = project_root(script)
        self.texts: dict[str, str] = dict(texts or {})
        self.modules: dict[str, str] = {}
        self._marked: set[str] = set()
        self._report = report

    def text(self, file: str) -> tuple[str, str]:
        """The real path of a file and its text. Raises EditError for one that is not the user's to change."""
        path = str(Path(file).resolve())
        if path not in self.texts:
            if not is_own_file(file, self._report.run) or not Path(path).is_relative_to(self.root):
                raise EditError(f"{file} is not a file of the script's project")
            if file in self._report.changed_sources:
                raise EditError(f"{file} is no longer as it ran")
            self.texts[path] = self._read(path)
        return path, self.texts[path]

    def library_text(self, file: str) -> tuple[str, str]:
        """The same of a file of an installed package. Raises EditError for one that no import finds."""
        path = str(Path(file).resolve())
        if path not in self.texts:
            run = self._report.run
            around = [str(folder) for folder in Path(path).parents if folder.name in ("site-packages", "dist-packages")]
            roots = (*run.site_prefixes, *run.libraries, *around)
            inside = [Path(path).relative_to(root) for root in roots if Path(path).is_relative_to(root)]
            parts = min((item.with_suffix("").parts for item in inside), key=len, default=())
            if not parts or not path.endswith(".py") or not all(part.isidentifier() for part in parts):
                raise EditError(f"{file} is not a module of an installed package")
            self.texts[path] = self._read(path)
            self.modules[path] = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        return path, self.texts[path]

    def changed(self) -> str | None:
        """The first of these files that no longer holds what it did."""
        return next((path for path, text in self.texts.items() if text_of(path).removeprefix(BOM) != text), None)

    def whole(self, texts: Mapping[str, str]) -> dict[str, str]:
        """The texts as files have them: with the mark that some begin with."""
        return {path: BOM + text if path in self._marked else text for path, text in texts.items()}

    def _read(self, path: str) -> str:
        text = text_of(path)
        if text.startswith(BOM):
            self._marked.add(path)
        return text.removeprefix(BOM)


def text_of(path: str) -> str:
    """The text of a source file. Raises EditError for one that cannot be changed as a text."""
    try:
        data = read_small(Path(path), _LONGEST_FILE + 1)
        text = data.decode("utf-8")
    except (OSError, ValueError) as error:
        raise EditError(f"{path} cannot be read as UTF-8: {error}") from None
    if len(data) > _LONGEST_FILE or "\r" in text.replace("\r\n", "\n"):
        raise EditError(f"{path} is too long or has unusual line ends")
    return text
