"""What a call of `dynadiag mcp` may name: scripts and recordings in the server's folder, words for a script, a Python of the list."""

from __future__ import annotations

import glob
import os
import re
import shutil
import sys
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dynadiag.errors import DynadiagError, UsageError
from dynadiag.render.sanitise import clean
from dynadiag.trace.sources import find_sources, is_recording

LONGEST_WORD, LONGEST_LINE = 4_096, 65_536
"""Characters of one argument, and of all of a call."""
_NETWORK = re.compile(
    r"\b(?:https?|ftps?|sftp|wss?|tcp|udp|grpc|s3[an]?|gs|gcs|az|abfss?|wasbs?|adl|oss|hf|(?:web)?hdfs|rediss?|postgres(?:ql)?|mysql|"
    r"mongodb(?:\+srv)?)://(?:(?!::)[^\s\"',;|])*"
)
_FROM_ENVIRONMENT = re.compile(r"\benv://(?![^\s?])")
_PIECES = (re.compile(r"[\s\"'`]+"), re.compile(r"[\s\"'`=:,;|&()<>\[\]{}]+"), re.compile(r"[^\w./~*?-]+"))
"""Where a path may begin and end: between quotes; behind an option and in lists; behind whatever is no letter of a plain path."""
_BEFORE_PATH = re.compile(r"[^\w./~$*?\[-]+")
_WILD = re.compile(r"[*?\[]")
_MOST_MATCHES, _MOST_STEPS = 10_000, 200_000
"""What the patterns of a call may match in all, and the parts of those paths: each is looked at."""
_MOST_DECODED = 4
_SHORT_OPTION = re.compile(r"-[A-Za-z0-9]+?(?=[/~]|\.\.|\$)")


@dataclass(frozen=True, kw_only=True)
class Confinement:
    """The folders (as they really are, the server's own first) and the interpreters that a call may name."""

    folders: tuple[str, ...]
    pythons: Mapping[str, str] = field(default_factory=dict)
    """Where the interpreters are, by the words that they were given by."""
    edits: bool = False
    """Whether calls may give new texts for the programs that they run."""

    @classmethod
    def of(cls, folder: Path, further: Iterable[Path], pythons: Iterable[str], *, edits: bool = False) -> Confinement:
        """Of what the server was started with. Raises UsageError for a folder or an interpreter that is not there."""
        for path in further:
            if not path.is_dir():
                raise UsageError(f"--allow-path {path}: no such folder")
        return cls(
            folders=tuple(os.path.realpath(item) for item in (folder, *further)),
            pythons={name: _interpreter(name) for name in pythons},
            edits=edits,
        )

    def checked_target(self, word: str, *, with_graph: bool = False) -> tuple[str, bool]:
        """Where a target really is, and whether it is a program, to be run; False: a recording, to be read.

        A link that is changed after this check leads nowhere else. `with_graph`: `RUN#g3` is a recording, too.
        """
        found = self._from_here(self.check_place(checked_code(word)))
        path, mark, graph = word.rpartition("#")
        if with_graph and mark and not Path(word).exists() and Path(path).exists():
            return f"{self._from_here(self.check_place(path))}#{graph}", False
        try:
            if Path(found).exists() and not (Path(found).is_file() or Path(found).is_dir()):
                raise UsageError(f"{clean(word)} is neither a file nor a folder")
            return found, not is_recording(Path(found))
        except (DynadiagError, OSError, ValueError) as error:
            raise UsageError(error.message if isinstance(error, DynadiagError) else f"cannot read {clean(word)}: {error}") from None

    def checked_recording(self, word: str) -> str:
        """Where a recording really is; UsageError for what is none."""
        found, is_program = self.checked_target(word)
        if is_program:
            raise UsageError(f"{clean(word)} is no run and no log")
        return found

    def _from_here(self, real: str) -> str:
        """A path as the verb is given it: as short as a user types it, and never an option."""
        short = os.path.relpath(real, self.folders[0]) if real.startswith(self.folders[0].rstrip("/") + "/") else real
        return real if short.startswith("-") else short

    def check_arguments(self, target: str, is_program: bool, words: Sequence[str]) -> None:
        """Raise UsageError for words behind a recording, which takes none, and for a path among them that leads out of the folders."""
        if words and not is_program:
            raise UsageError(f"{clean(target)} is a run or a log and takes no arguments: leave args out")
        if sum(map(len, words)) > LONGEST_LINE or any(len(word) > LONGEST_WORD for word in words):
            raise UsageError(f"args are too long: at most {LONGEST_WORD:,} characters each, and {LONGEST_LINE:,} together")
        room = _Room()
        for word in words:
            if not _encodable(word):
                raise UsageError(f"{clean(ascii(word))} cannot be an argument of a program")
            self._check_word(word, room)

    def check_patch(self, target: str, patch: str) -> None:
        """Raise UsageError for a patch of files outside the folders, wherever its names begin: here or in the project's folder."""
        from dynadiag.fix.given_edits import names_in_patch
        from dynadiag.record.project_root import project_root

        if not _encodable(patch):
            raise UsageError("the patch is no text in UTF-8")
        for name in names_in_patch(patch):
            for base in (self.folders[0], str(project_root(Path(target)))):
                if os.path.lexists(os.path.join(base, name)):  # noqa: PTH118 - as `check_place` joins them
                    self.check_place(name, base=base)

    def check_script_of_run(self, run: str) -> None:
        """Raise UsageError where what `fix` of a run starts, as it was recorded, is outside the folders or no Python of the server."""
        info = find_sources(Path(run)).info
        if info.cwd is None:
            return
        self.check_place(info.cwd)
        command = info.command or ()
        room = _Room()
        for word in command[1:]:
            self._check_word(word, room, base=info.cwd)
        if command:
            self._check_launch(run, command, info.cwd)

    def _check_launch(self, run: str, command: Sequence[str], folder: str) -> None:
        from dynadiag.fix.baseline import script_of_module  # these import most of dynadiag
        from dynadiag.fix.launch import split

        pythons = [sys.executable, *self.pythons.values()]
        program = shutil.which(command[0])
        is_launcher = os.path.basename(command[0]) == "torchrun"  # noqa: PTH119 - of a word that may be no path
        if program is None or not any((_is_next_to if is_launcher else _is_same)(program, python) for python in pythons):
            allowed = "torchrun of such a Python" if is_launcher else "Python of the server, and none that it was given with --python"
            raise UsageError(f"{clean(run)} was recorded with {clean(command[0])}, which is no {allowed}: name the script instead")
        launch, behind = split(command, Path(folder))
        if any(word.startswith(("--no-", "--no_")) for word in launch):  # argparse takes any beginning of --no-python
            raise UsageError(f"{clean(run)} was recorded with --no-python, which starts other programs: name the script instead")
        if len(behind) > 1 and behind[0] == "-m":  # what PYTHONPATH leads to may lie anywhere
            self.check_place(str(script_of_module(behind[1], Path(folder))))

    def checked_python(self, name: str | None) -> str | None:
        """The interpreter, if it is one of the list."""
        if name is None:
            return None
        if name in self.pythons:
            return self.pythons[name]
        for python in self.pythons.values():
            if os.sep in name and _is_same(name, python):
                return python
        known = f"it has: {', '.join(self.pythons.values())}" if self.pythons else "it was started with none"
        raise UsageError(f"{clean(name)} is no interpreter that the server was given with --python; {known}")

    def _check_word(self, word: str, room: _Room, *, base: str | None = None) -> None:
        for path in _paths_in(word):
            self.check_place(path, base=base)
            if "/" in path and _WILD.search(path):
                self._check_matches(path, room, base=base)

    def _check_matches(self, pattern: str, room: _Room, *, base: str | None) -> None:
        """The same for what a pattern matches, folder by folder: what is behind a link need not be there yet."""
        parts = pattern.split("/")
        for count in range(1, len(parts) + 1):
            if not _WILD.search(parts[count - 1]):
                continue
            found = glob.iglob("/".join(parts[:count]), root_dir=base or self.folders[0], include_hidden=True)  # noqa: PTH207 - as programs do
            for path in found:
                room.matches -= 1
                room.steps -= len(parts)
                if room.matches < 0 or room.steps < 0:
                    raise UsageError(
                        f"{clean(pattern, limit=200)} matches more than {_MOST_MATCHES:,} files, or in folders too deep: name fewer"
                    )
                self.check_place("/".join([path, *parts[count:]]), base=base)

    def check_place(self, path: str, *, base: str | None = None) -> str:
        """Where a path leads, through links and `..` too; UsageError for one that leads out of the folders."""
        try:
            real = os.path.realpath(os.path.join(base or self.folders[0], path))  # noqa: PTH118 - `Path` drops what is behind a link and ..
        except (OSError, ValueError) as error:
            raise UsageError(f"cannot read {clean(path)}: {error}") from None
        if not any(real == folder or real.startswith(folder.rstrip("/") + "/") for folder in self.folders):
            raise UsageError(
                f"{clean(path)} is outside the folder of the server ({self.folders[0]}); --allow-path DIR, given at its start, allows more"
            )
        return real


@dataclass
class _Room:
    """How much the patterns of a call may still match."""

    matches: int = _MOST_MATCHES
    steps: int = _MOST_STEPS


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
    """What a program may take for a path: all of it, what is behind an option or a mark such as @, and between quotes or commas."""
    texts = {word}
    for _ in range(_MOST_DECODED):  # a program may decode what it has decoded
        texts |= {urllib.parse.unquote(text) for text in texts}
    for text in texts:
        for url in _NETWORK.findall(text):
            if ".." in re.split(r"[/\\?#]", url):
                raise UsageError(f"{clean(url)} has .. in it, and may be taken for a path: write it without")
        yield from _paths_of(_FROM_ENVIRONMENT.sub("", _NETWORK.sub("", text)))


def _paths_of(text: str) -> Iterator[str]:
    pieces = {text, text.partition("=")[2], *(piece for cut in _PIECES for piece in cut.split(text))}
    pieces |= {_BEFORE_PATH.sub("", piece, count=1) for piece in pieces if _BEFORE_PATH.match(piece)}
    for piece in sorted(filter(None, pieces)):
        bare = _SHORT_OPTION.match(piece)
        for path in {piece, piece[bare.end() :] if bare else piece[2:] if re.match("-[^-]", piece) else piece}:
            yield from {path, os.path.expanduser(os.path.expandvars(path))}  # noqa: PTH111 - of a piece that may be no path


def _is_next_to(program: str, python: str) -> bool:
    """Whether a program is in the folder of an interpreter, as that of a virtual environment is."""
    return os.path.realpath(os.path.dirname(program)) == os.path.realpath(os.path.dirname(python))  # noqa: PTH120


def _is_same(program: str, python: str) -> bool:
    """Whether both are the same interpreter of the same environment: the link of another environment leads to the same file."""
    return _is_next_to(program, python) and os.path.realpath(program) == os.path.realpath(python)


def _interpreter(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise UsageError(f"--python {name}: no such program")
    return os.path.abspath(found)  # noqa: PTH100 - the link of a virtual environment stays
