"""The journal of a reduction: one JSON line a verdict, so that a search killed at any time goes on where it stopped.

The search is deterministic: run again with the verdicts of the journal it asks the same questions in the same order, and only the first
unanswered one costs a query.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import IO, Any

from dynadiag.errors import OutputError, UnreadableInputError
from dynadiag.files import extended, read_small
from dynadiag.json_lines import value_of
from dynadiag.reduce.core.verdict import Verdict

FORMAT = 1
_LARGEST_BYTES = 1 << 30  # of a journal that is read


class Journal:
    """Verdicts by the key of a candidate, kept in memory and, when there is a `path`, in a file that only grows.

    `subject` names what is reduced and how it is judged. With `resume`, a journal of the same subject is continued.
    Raises UnreadableInputError when the file belongs to another subject, OutputError when it cannot be written.
    """

    def __init__(self, path: Path | None = None, *, subject: str = "", resume: bool = False) -> None:
        self._verdicts: dict[str, tuple[Verdict, str]] = {}
        self._file: IO[str] | None = None
        self._path = path
        self.recovered = 0
        if path is None:
            return
        try:
            usable = self._read(path, subject) if resume and os.path.lexists(path) else 0
            self._file = os.fdopen(extended(path, keep_bytes=usable), "w", encoding="utf-8")
        except OSError as error:
            raise OutputError(f"cannot write the journal {path}: {error.strerror or error}") from error
        if not usable:
            self._write({"journal": FORMAT, "subject": subject})

    def get(self, key: str) -> tuple[Verdict, str] | None:
        """The verdict on a candidate and what was remarked with it; None when it was never asked."""
        return self._verdicts.get(key)

    def put(self, key: str, verdict: Verdict, remark: str = "") -> None:
        """Note a verdict, on disk before it is used."""
        self._verdicts[key] = (verdict, remark)
        self._write({"key": key, "verdict": verdict.value, "remark": remark})

    def take_refusals(self, other: Journal) -> None:
        """Take over what another journal refused: for a search that adopts less than the other did."""
        refused = {key: said for key, said in other._verdicts.items() if said[0] is not Verdict.INTERESTING}
        self._verdicts = {**refused, **self._verdicts}

    def put_original(self, key: str) -> None:
        """Note what is reduced as interesting, since it was confirmed."""
        if self.get(key) is None:
            self.put(key, Verdict.INTERESTING)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _write(self, line: dict[str, Any]) -> None:
        if self._file is None:
            return
        try:
            self._file.write(json.dumps(line) + "\n")
            self._file.flush()
        except OSError as error:
            raise OutputError(f"cannot write the journal {self._path}: {error.strerror or error}") from error

    def _read(self, path: Path, subject: str) -> int:
        """Take the verdicts of all whole lines; gives how many bytes those are (a line cut short by a kill is dropped)."""
        usable = 0
        for number, raw in enumerate(read_small(path, _LARGEST_BYTES).splitlines(keepends=True)):
            line = _parsed(raw)
            if number == 0 and (line is None or line.get("journal") != FORMAT or line.get("subject") != subject):
                raise UnreadableInputError(f"{path} is not the journal of this reduction: remove it, or choose another place")
            if line is None:
                break
            if number:
                self._take(line)
            usable += len(raw)
        return usable

    def _take(self, line: dict[str, Any]) -> None:
        try:
            self._verdicts[str(line["key"])] = (Verdict(line["verdict"]), str(line.get("remark", "")))
        except (KeyError, ValueError):
            return
        self.recovered += 1


def _parsed(raw: bytes) -> dict[str, Any] | None:
    if not raw.endswith(b"\n"):
        return None
    try:
        line = value_of(raw)
    except ValueError:
        return None
    return line if isinstance(line, dict) else None
