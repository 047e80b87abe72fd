"""What the C++ compiler said of a source is not asked again: by its text, its command line and nothing else.

Inductor keeps libraries on disk for all processes of a user; a child of the reducer has a cache of its own, so each would compile each
kernel anew (0.5 to 1 CPU second each, torch 2.15).
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

Forgettable = Callable[[BaseException], bool]


class Compilations:
    """Libraries by the digest of source and command, in a folder that processes may share; errors too, while `errors` is on.

    An error is kept when the compiler ended by itself with status 1 and `forgettable` (the machine may be to blame) does not say otherwise.
    """

    def __init__(self, folder: Path, forgettable: Forgettable) -> None:
        self._folder = folder
        self._forgettable = forgettable
        self.errors = False

    def run(self, command: Sequence[str], **options: Any) -> Any:
        """As `subprocess.run(command, check=True, stdout=PIPE, stderr=STDOUT)` with the compiler's answer, known or asked for now."""
        asked = _Compilation.of(command)
        if asked is None or not options.get("check"):
            return subprocess.run(command, **options)
        library, error = (self._folder / f"{asked.digest}{ending}" for ending in (".so", ".json"))
        if _linked(library, asked.target):
            return subprocess.CompletedProcess(command, 0, b"")
        if self.errors and (said := _read(error, asked)) is not None:
            raise subprocess.CalledProcessError(1, command, said.encode("utf-8", "surrogateescape"))
        try:
            done = subprocess.run(command, **options)
        except subprocess.CalledProcessError as failed:
            self._keep_error(failed, asked, error)
            raise
        _keep(library, lambda to: shutil.copyfile(asked.target, to))
        return done

    def _keep_error(self, failed: subprocess.CalledProcessError, asked: _Compilation, to: Path) -> None:
        if not self.errors or failed.returncode != 1 or not isinstance(failed.output, bytes):
            return
        said = failed.output.decode("utf-8", "surrogateescape")
        if "error:" in said and "internal compiler error" not in said and not self._forgettable(RuntimeError(said)):
            _keep(to, lambda path: Path(path).write_text(json.dumps([asked.source, asked.target, said]), "ascii"))


class _Compilation:
    """One source to one library."""

    def __init__(self, source: str, target: str, digest: str) -> None:
        self.source, self.target, self.digest = source, target, digest

    @classmethod
    def of(cls, command: Sequence[str]) -> _Compilation | None:
        """None for what is no plain `g++ SOURCE.cpp ... -o TARGET.so` (`torch/_inductor/cpp_builder.py`, 2.11 to 2.15)."""
        sources = [part for part in command if part.endswith((".cpp", ".o"))]
        targets = [after for before, after in itertools.pairwise(command) if before == "-o"]
        if len(sources) != 1 or len(targets) != 1 or not sources[0].endswith(".cpp") or not targets[0].endswith(".so"):
            return None
        try:
            text = Path(sources[0]).read_bytes()
        except OSError:
            return None
        words = ["SOURCE" if part == sources[0] else "TARGET" if part == targets[0] else part for part in command]
        digest = hashlib.sha256(b"\0".join([*(word.encode("utf-8", "surrogateescape") for word in words), text])).hexdigest()
        return cls(sources[0], targets[0], digest)


def _linked(library: Path, target: str) -> bool:
    try:
        shutil.copyfile(library, target)
        Path(target).chmod(0o755)
    except FileNotFoundError:
        return False
    return True


def _read(error: Path, asked: _Compilation) -> str | None:
    """What the compiler said, of the files of this child."""
    try:
        source, target, said = json.loads(error.read_text("ascii"))
    except FileNotFoundError:
        return None
    text: str = said.replace(target, asked.target).replace(source, asked.source)
    return text


def _keep(file: Path, write: Callable[[str], object]) -> None:
    """Whole or not at all: who is killed on the way leaves a file that nobody reads. Where there is no room nothing is kept."""
    with contextlib.suppress(OSError):
        number, name = tempfile.mkstemp(dir=file.parent)
        os.close(number)
        try:
            write(name)
            Path(name).replace(file)
        except OSError:
            Path(name).unlink()
            raise


class _Subprocess:
    """The module `subprocess` with another `run`."""

    def __init__(self, run: Callable[..., Any]) -> None:
        self.run = run

    def __getattr__(self, name: str) -> Any:
        return getattr(subprocess, name)


_now: Compilations | None = None


@contextlib.contextmanager
def remembered(folder: Path, forgettable: Forgettable) -> Iterator[None]:
    """Inside, this process and its forks keep the libraries that they compile in `folder` and take them from there."""
    global _now
    import torch._inductor.cpp_builder

    builder: Any = torch._inductor.cpp_builder
    _now = Compilations(folder, forgettable)
    builder.subprocess = _Subprocess(_now.run)
    try:
        yield
    finally:
        builder.subprocess, _now = subprocess, None


@contextlib.contextmanager
def errors_too() -> Iterator[None]:
    """Inside, what does not compile is remembered as well, where libraries are: for questions, never for a proof, whose processes are
    started or forked before this. The source is made anew each time, so a failure that depends on how it is made still comes and goes.
    """
    if _now is None:
        yield
        return
    before, _now.errors = _now.errors, True
    try:
        yield
    finally:
        _now.errors = before
