"""What an earlier run of a search found out: answers by question, in a file. Used on the same machine alone.

Whoever asks does not have to know: `remembered` gives the answer of the earlier run while there is one, else asks and writes it down.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import IO, Any

from dynadiag.errors import OutputError
from dynadiag.files import extended, read_small
from dynadiag.json_lines import value_of

FORMAT = 1
_LARGEST_BYTES = 1 << 30
_NOT_SAID = "the earlier run does not record its machine and torch version"
READ_BY_TORCH = ("TORCH", "PYTORCH", "CUDA", "OMP_", "MKL_", "TRITON", "CXX", "CC", "CFLAGS", "CXXFLAGS", "LD_PRELOAD", "LD_LIBRARY_PATH")


class AnswerCache:
    """Answers in a file that only grows, each used once, in their order. `changed` says why those of an earlier run are not used.

    `environment` is what answers depend on: where it differs from that of the earlier run, all is asked again. Raises OutputError when the
    file cannot be written.
    """

    def __init__(self, path: Path, *, environment: Mapping[str, str], resume: bool) -> None:
        self._answers: defaultdict[str, deque[Any]] = defaultdict(deque)
        self._path = path
        self.changed: str | None = None
        try:
            usable = self._read(environment) if resume else 0
            self._file: IO[str] = os.fdopen(extended(path, keep_bytes=usable), "w", encoding="utf-8")
        except OSError as error:
            raise OutputError(f"cannot write {path}: {error.strerror or error}") from error
        if not usable:
            self._write({"known": FORMAT, "environment": dict(environment)})

    def answer(self, key: str, ask: Callable[[], Any], keep: Callable[[Any], bool]) -> Any:
        """The next answer to this question, or what `ask` gives, written down where `keep` says so."""
        if self._answers[key]:
            return self._answers[key].popleft()
        given = json.loads(json.dumps(ask()))
        if keep(given):
            self._write({"key": key, "answer": given})
        return given

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _write(self, line: Mapping[str, Any]) -> None:
        try:
            self._file.write(json.dumps(line) + "\n")
            self._file.flush()
        except OSError as error:
            raise OutputError(f"cannot write {self._path}: {error.strerror or error}") from error

    def _read(self, environment: Mapping[str, str]) -> int:
        """Take the answers of all whole lines; gives how many bytes those are, none where the machine is another."""
        lines = read_small(self._path, _LARGEST_BYTES).splitlines(keepends=True) if os.path.lexists(self._path) else []
        first = _parsed(lines[0]) if lines else None
        if first is None or first.get("known") != FORMAT or not isinstance(first.get("environment"), dict):
            self.changed = _NOT_SAID
            return 0
        self.changed = _difference(first["environment"], environment)
        usable = 0
        for number, raw in enumerate(lines if self.changed is None else ()):
            line = _parsed(raw)
            if line is None:
                break
            if number and "key" in line and "answer" in line:
                self._answers[str(line["key"])].append(line["answer"])
            usable += len(raw)
        return usable


def _parsed(raw: bytes) -> dict[str, Any] | None:
    try:
        line = value_of(raw) if raw.endswith(b"\n") else None
    except ValueError:
        return None
    return line if isinstance(line, dict) else None


def _difference(before: Mapping[str, Any], now: Mapping[str, str]) -> str | None:
    changed = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    if not changed:
        return None
    said = [f"{name} was {before.get(name) or 'not set'} and is {now.get(name) or 'not set'}" for name in changed[:2]]
    return "; ".join(said) + (f"; {len(changed) - 2} more differ" if len(changed) > 2 else "")


def variables() -> dict[str, str]:
    """The variables that compilers and torch read, by name."""
    return {name: value for name, value in sorted(os.environ.items()) if name.startswith(READ_BY_TORCH)}


_current: ContextVar[AnswerCache | None] = ContextVar("dynadiag_known", default=None)


@contextlib.contextmanager
def remembering(known: AnswerCache | None) -> Iterator[None]:
    """Use and write these answers inside, then close their file; None: ask each question anew."""
    before = _current.set(known)
    try:
        yield
    finally:
        _current.reset(before)
        if known is not None:
            known.close()


def remembered(key: str, ask: Callable[[], Any], keep: Callable[[Any], bool] = lambda answer: True) -> Any:
    """Plain data that answers a question: that of the earlier run while there is one, else what `ask` gives."""
    known = _current.get()
    return ask() if known is None else known.answer(key, ask, keep)


def digest(*parts: object) -> str:
    """A short name for what a question depends on."""
    return hashlib.sha256("\n".join(map(str, parts)).encode("utf-8", "backslashreplace")).hexdigest()[:32]
