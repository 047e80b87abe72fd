"""What a call of `dynadiag mcp` may name: scripts and recordings in the server's folder, words for a script, a Python of the list."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dynadiag.errors import DynadiagError, UsageError
from dynadiag.render.sanitise import clean
from dynadiag.trace.sources import find_sources, is_recording

LONGEST_WORD, LONGEST_LINE = 4_096, 65_536
"""Characters of one argument, and of all of a call."""
_NETWORK = re.compile(
    r"\b(?:https?|ftps?|wss?|tcp|udp|grpc|s3|gs|gcs|az|abfss?|hf|redis|postgres(?:ql)?|mysql|mongodb(?:\+srv)?)://[^\s\"']*"
)
_PIECES = (re.compile(r"[\s\"'`]+"), re.compile(r"[\s\"'`=:,;|&()<>\[\]{}]+"))
_SHORT_OPTION = re.compile(r"-[A-Za-z0-9]+?(?=[/~]|\.\.|\$)")


@dataclass(frozen=True, kw_only=True)
class Confinement:
    """The folders (as they really are, the server's own first) and the interpreters that a call may name."""

    folders: tuple[str, ...]
    pythons: tuple[str, ...] = ()

    @classmethod
    def of(cls, folder: Path, further: Iterable[Path], pythons: Iterable[str]) -> Confinement:
        """Of what the server was started with. Raises UsageError for a folder or an interpreter that is not there."""
        for one in further:
            if not one.is_dir():
                raise UsageError(f"--allow-path {one}: no such folder")
        return cls(
            folders=tuple(os.path.realpath(one) for one in (folder, *further)),
            pythons=tuple(_interpreter(name) for name in pythons),
        )

    def is_program(self, word: str, *, with_graph: bool = False) -> bool:
        """Whether a target is a program, to be run; False: a recording, to be read. `with_graph`: `RUN#g3` is a recording, too."""
        self.check_place(checked_code(word))
        path, mark, _ = word.rpartition("#")
        if with_graph and mark and not Path(word).exists() and Path(path).exists():
            self.check_place(path)
            return False
        try:
            return not is_recording(Path(word))
        except (DynadiagError, OSError, ValueError) as error:
            raise UsageError(error.message if isinstance(error, DynadiagError) else f"cannot read {clean(word)}: {error}") from None

    def check_recording(self, word: str) -> None:
        """Raise UsageError for what is no recording."""
        if self.is_program(word):
            raise UsageError(f"{clean(word)} is no run and no log")

    def check_arguments(self, target: str, is_program: bool, words: Sequence[str]) -> None:
        """Raise UsageError for words behind a recording, which takes none, and for a path among them that leads out of the folders."""
        if words and not is_program:
            raise UsageError(f"{clean(target)} is a run or a log and takes no arguments: leave args out")
        if sum(map(len, words)) > LONGEST_LINE or any(len(word) > LONGEST_WORD for word in words):
            raise UsageError(f"args are too long: at most {LONGEST_WORD:,} characters each, and {LONGEST_LINE:,} together")
        for word in words:
            if not _encodable(word):
                raise UsageError(f"{clean(ascii(word))} cannot be an argument of a program")
            for path in _paths_in(word):
                self.check_place(path)

    def check_script_of_run(self, run: str) -> None:
        """Raise UsageError where the program of a run, which `fix` starts as it was recorded, is outside the folders."""
        info = find_sources(Path(run)).info
        if info.cwd is None:
            return
        self.check_place(info.cwd)
        for word in (info.command or ())[1:]:
            for path in _paths_in(word):
                self.check_place(path, base=info.cwd)

    def checked_python(self, name: str | None) -> str | None:
        """The interpreter, if it is one of the list."""
        if name is None or name in self.pythons:
            return name
        known = f"it has: {', '.join(self.pythons)}" if self.pythons else "it was started with none"
        raise UsageError(f"{clean(name)} is no interpreter that the server was given with --python; {known}")

    def check_place(self, path: str, *, base: str | None = None) -> None:
        """Raise UsageError for a path that leads out of the folders, through links and `..` too."""
        try:
            real = os.path.realpath(os.path.join(base or self.folders[0], path))  # noqa: PTH118 - `Path` drops what is behind a link and ..
        except (OSError, ValueError) as error:
            raise UsageError(f"cannot read {clean(path)}: {error}") from None
        if not any(real == folder or real.startswith(folder.rstrip("/") + "/") for folder in self.folders):
            raise UsageError(
                f"{clean(path)} is outside the folder of the server ({self.folders[0]}); --allow-path DIR, given at its start, allows more"
            )


def checked_code(word: str) -> str:
    """A word that stands where a target does: never an option."""
    if not word or word.startswith("-") or len(word) > LONGEST_WORD or not _encodable(word):
        raise UsageError(f"{clean(ascii(word), limit=100)} is no script, run, log or code")
    return word


def _encodable(word: str) -> bool:
    try:
        return b"\0" not in os.fsencode(word)
    except UnicodeEncodeError:
        return False


def _paths_in(word: str) -> Iterator[str]:
    """What a program may take for a path: all of it, what is behind an option and between quotes, commas and the like."""
    text = _NETWORK.sub("", word)
    pieces = {text, text.partition("=")[2], *(piece for cut in _PIECES for piece in cut.split(text))}
    for piece in sorted(filter(None, pieces)):
        bare = _SHORT_OPTION.match(piece)
        for path in {piece, piece[bare.end() :] if bare else piece[2:] if re.match("-[^-]", piece) else piece}:
            yield from {path, os.path.expanduser(os.path.expandvars(path))}  # noqa: PTH111 - of a piece that may be no path


def _interpreter(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise UsageError(f"--python {name}: no such program")
    return os.path.abspath(found)  # noqa: PTH100 - the link of a virtual environment stays
