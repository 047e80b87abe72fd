"""The rows of a sweep: one JSON object a line, appended as tasks end; a line that is not whole is not there."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec

import dynadiag
from dynadiag.errors import UnreadableInputError
from dynadiag.files import extended, read_small, write_inside
from dynadiag.json_lines import parsed

JOURNAL = "rows.jsonl"
"""The journal of a sweep, in its folder; each row is in it once."""
FORMAT = 1
MARKER = "dynadiag-sweep.json"
"""The file that says that a folder is a sweep."""
_MOST_BYTES = 1 << 20
_Kind = TypeVar("_Kind")
Status = Literal["done", "failed", "crashed", "timeout", "out_of_memory", "skipped", "lost"]
"""How a task ended. `failed`: its program raised; `skipped`: it cannot be built here; `lost`: its worker vanished as often as is tried."""
WELL = ("done", "skipped")
"""The ends that are no failure."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A finding of a report, short. `cost` in `unit`, such as "ms per call" with `--cost`; None where nothing was measured or counted."""

    code: str
    severity: str
    fingerprint: str | None = None
    title: str = ""
    file: str | None = None
    line: int | None = None
    cost: Annotated[int | float | None, float | None, "in `unit`; null where nothing was measured or counted"] = None
    unit: Annotated[str | None, 'such as "ms per call", measured with `--cost`, or "recompiles", counted'] = None


@dataclass(frozen=True, kw_only=True)
class TaskRow:
    """What came of one task. Seconds of the task's processes; `memory_mb` of them together, as seen every half second.

    `verdict` is that of verbs other than `run` and `explain`, whose exit status is 1 for a bad one. The counts are those of `report.json`,
    None where the verb has none or no report came of it. `gpus` are the ids of those that the task had for itself.
    """

    key: Annotated[str, "a digest of subject, arm, verb and versions; also the name of the task's folder"]
    subject: str
    suite: str
    arm: str
    verb: str
    status: Status
    reason: str | None = None
    verdict: Annotated[str | None, "of verbs other than run and explain"] = None
    settings: Annotated[dict[str, Any], "what the arm sets"] = field(default_factory=dict)
    dynadiag: str | None = None
    torch: str | None = None
    python: str | None = None
    library: str | None = None
    exit_status: int | None = None
    signal: int | None = None
    started_at: str | None = None
    wall_s: float | None = None
    cpu_s: Annotated[float | None, "of the task's processes that were waited for"] = None
    memory_mb: Annotated[
        float | None, "of all processes of the task together, looked at every half second; at least what the largest one used"
    ] = None
    host: str | None = None
    gpus: Annotated[str | None, "ids of the GPUs that the task had for itself, where its arm asks for some"] = None
    graphs: int | None = None
    break_sites: int | None = None
    recompiles: int | None = None
    fallbacks: int | None = None
    mutations: int | None = None
    compile_s: float | None = None
    compiled_share: Annotated[float | None, "of the operators of a call, those that run in graphs"] = None
    findings: tuple[Finding, ...] = ()


def mark(folder: Path) -> None:
    """Say in a folder that it is a sweep. Raises OSError."""
    write_inside(folder, MARKER, json.dumps({"format": FORMAT, "dynadiag": dynadiag.__version__}) + "\n")


def is_sweep(folder: Path) -> bool:
    """Whether a folder says so, or has a row of ours: one of before there was a marker."""
    for name in (MARKER, JOURNAL):
        with contextlib.suppress(OSError):
            first = parsed(read_small(folder / name, _MOST_BYTES).partition(b"\n")[0]) or {}
            if first.get("format") == FORMAT and ("dynadiag" in first if name == MARKER else _row(first) is not None):
                return True
    return False


def append(folder: Path, row: TaskRow) -> None:
    """Add a row behind the last whole line. Raises OSError, and then the journal is as it was."""
    path = folder / JOURNAL
    whole = _whole_bytes(path)
    descriptor = extended(path, keep_bytes=whole)
    try:
        left = json.dumps({"format": FORMAT, **asdict(row)}).encode() + b"\n"
        try:
            while left:
                left = left[os.write(descriptor, left) :]
            os.fsync(descriptor)
        except OSError:
            os.ftruncate(descriptor, whole)
            raise
    finally:
        os.close(descriptor)


def _whole_bytes(path: Path) -> int:
    """Where the last whole line ends."""
    try:
        with path.open("rb") as stream:
            end = stream.seek(0, os.SEEK_END)
            while end:
                begin = max(0, end - (1 << 16))
                stream.seek(begin)
                at = stream.read(end - begin).rfind(b"\n")
                if at >= 0:
                    return begin + at + 1
                end = begin
    except FileNotFoundError:
        pass
    return 0


def read(folder: Path) -> list[TaskRow]:
    """The rows of a sweep, each key once (its last row), in the order in which they came. Raises UnreadableInputError for no sweep."""
    found: dict[str, TaskRow] = {}
    try:
        with (folder / JOURNAL).open("rb") as stream:
            for line in stream:
                row = _row(parsed(line)) if line.endswith(b"\n") else None
                if row is not None:
                    found.pop(row.key, None)
                    found[row.key] = row
    except OSError as error:
        raise UnreadableInputError(f"{folder} is no sweep: {folder / JOURNAL}: {error.strerror or error}") from None
    return list(found.values())


def merged(folders: Iterable[Path]) -> list[TaskRow]:
    """The rows of several sweeps (the shards of one), each key once; of two with one key the one that did not fail."""
    found: dict[str, TaskRow] = {}
    for folder in folders:
        for row in read(folder):
            if row.key not in found or found[row.key].status not in WELL:
                found[row.key] = row
    return list(found.values())


def earlier_and_latest(rows: Iterable[TaskRow]) -> tuple[list[TaskRow], list[TaskRow]]:
    """Of each task that ran with several versions (of torch, of its library, of its script) the row before the last one, and the last."""
    found: dict[tuple[str, str, str], list[TaskRow]] = {}
    for row in rows:
        found.setdefault((row.subject, row.arm, row.verb), []).append(row)
    return [listed[-2] for listed in found.values() if len(listed) > 1], [listed[-1] for listed in found.values()]


def _row(message: dict[str, Any] | None) -> TaskRow | None:
    """A row whose values have the types that they should have; None for a line that is none."""
    if message is None or message.get("format") != FORMAT:
        return None
    findings = message.get("findings")
    row = _converted(message | {"findings": []}, TaskRow)
    found = (_converted(item, Finding) for item in (findings if isinstance(findings, list) else ()))
    return row and replace(row, findings=tuple(item for item in found if item is not None))


def _converted(value: Any, kind: type[_Kind]) -> _Kind | None:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return None


_NUMBERS = re.compile(r"0x[0-9a-f]+|(?<![\w.])\d+(?:\.\d+)?(?![\w])")


def groups_of(rows: Iterable[TaskRow]) -> list[list[TaskRow]]:
    """Rows that did not end well, equal failures together: the same end and reason but for free-standing numbers. Largest groups first."""
    found: dict[tuple[str, str], list[TaskRow]] = {}
    for row in rows:
        if row.status not in WELL:
            found.setdefault((row.status, _NUMBERS.sub("N", row.reason or "")), []).append(row)
    return sorted(found.values(), key=len, reverse=True)


def statuses(rows: Iterable[TaskRow]) -> list[tuple[Status, int]]:
    """How many rows ended how, the most first."""
    return Counter(row.status for row in rows).most_common()
