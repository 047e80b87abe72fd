"""Two runs of one program compared by hashes of what their graphs gave: the first that differs, and its generated code. No torch."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from dynadiag.capture.output_hashes import HASHES, VARIABLE, HashSettings
from dynadiag.errors import DynadiagError, NothingFoundError, UnreadableInputError
from dynadiag.json_lines import value_of
from dynadiag.numerics.result import CodeKeys, TwoRunsKeys
from dynadiag.record import RecordOptions, Target, record
from dynadiag.trace import load, read_payload

RECORDING = "recording"
_LARGEST_BYTES = 1 << 30
_LONGEST_ROW = 300


@dataclass(frozen=True)
class HashedCall:
    """A call of a graph: the hashes of its inputs, of its outputs, and of its inputs after it."""

    graph: int
    call: int
    function: str
    inputs: tuple[str | None, ...]
    outputs: tuple[str | None, ...]
    after: tuple[str | None, ...]


def record_hashes(program: Target, folder: Path, calls: int, timeout_s: float, *, quiet: bool = False) -> None:
    """Run the program once, with a hash of each of the first calls of its graphs written into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    options = RecordOptions(
        out=folder / RECORDING,
        force=True,
        timeout_s=timeout_s,
        output=folder / "output.txt" if quiet else None,
        environment={VARIABLE: HashSettings(str(folder.resolve()), calls).dumps()},
    )
    result = record(program, options)
    if result.told_to_end is not None:
        raise DynadiagError("interrupted while the script ran", slug="interrupted", exit_code=128 + result.told_to_end)
    if result.interrupted:
        raise KeyboardInterrupt


def has_hashes(folder: Path) -> bool:
    """Whether a run wrote hashes there."""
    return any(folder.glob(HASHES.format("*")))


def compare_runs(old: Path, new: Path) -> TwoRunsKeys:
    """The first graph whose outputs differ for equal inputs, or what differs before. Raises NothingFoundError where a run has no hashes."""
    sides = [_processes(folder) for folder in (old, new)]
    for folder, processes in zip((old, new), sides, strict=True):
        if not processes:
            raise NothingFoundError(f"{folder} has no hashes of a graph: no graph was called, or it was not run with --hashes")
    if len(sides[0]) != len(sides[1]):
        raise UnreadableInputError(f"the runs have {len(sides[0])} and {len(sides[1])} processes with compiled graphs", exit_code=2)
    compared = 0
    for process, (was, now) in enumerate(zip(*sides, strict=True)):
        for one, other in zip_longest(was, now):
            found = _difference(one, other)
            if found is not None:
                place = one or other
                assert place is not None
                code = _code(old, new, process, place.graph) if found[0] == "graph" else None
                return {
                    "outcome": found[0],
                    "process": process if len(sides[0]) > 1 else None,
                    "graph": place.graph,
                    "call": place.call,
                    "function": place.function,
                    "what": found[1],
                    "equal_calls": compared,
                    "code": code,
                }
            compared += 1
    return {
        "outcome": "equal",
        "process": None,
        "graph": None,
        "call": None,
        "function": None,
        "what": None,
        "equal_calls": compared,
        "code": None,
    }


def _difference(one: HashedCall | None, other: HashedCall | None) -> tuple[str, str] | None:
    """What differs first between two calls, and in words."""
    if one is None or other is None or (one.graph, one.call) != (other.graph, other.call):
        return "order", "the runs call other graphs from here on"
    for outcome, words, was, now in (
        ("inputs", "input", one.inputs, other.inputs),
        ("graph", "output", one.outputs, other.outputs),
        ("graph", "input after the call", one.after, other.after),
    ):
        if was != now:
            at = next((at for at, pair in enumerate(zip(was, now, strict=False)) if pair[0] != pair[1]), min(len(was), len(now)))
            return outcome, f"{words} {at}"
    return None


def _processes(folder: Path) -> list[list[HashedCall]]:
    """The calls of each process, the processes in the order of their ids."""
    files = sorted(folder.glob(HASHES.format("*")), key=lambda path: (len(path.name), path.name))
    return [calls for file in files if (calls := list(_calls(file)))]


def _calls(file: Path) -> Iterator[HashedCall]:
    try:
        if os.path.getsize(file) > _LARGEST_BYTES:  # noqa: PTH202 - its error is that of the read
            raise UnreadableInputError(f"{file} is larger than {_LARGEST_BYTES >> 20} MiB")
        lines = file.read_text("utf-8", errors="replace").splitlines()
    except OSError as error:
        raise UnreadableInputError(f"cannot read {file}: {error.strerror or error}") from error
    for line in lines:
        try:
            found = value_of(line)
            name, path, number = (str(part) for part in found["function"] or ("", "", ""))
            yield HashedCall(
                graph=int(found["graph"]),
                call=int(found["call"]),
                function=f"{name} ({Path(path).name}:{number})" if name else "",
                **{key: _texts(found[key]) for key in ("inputs", "outputs", "after")},
            )
        except (ValueError, KeyError, TypeError, AttributeError):
            continue  # a line cut short, or a file that somebody changed


def _texts(values: Sequence[Any]) -> tuple[str | None, ...]:
    return tuple(None if value is None else str(value) for value in values)


def _code(old: Path, new: Path, process: int, graph: int) -> CodeKeys | None:
    """Whether the code that Inductor generated for the frame of a graph is the same in both recordings; None where one has none."""
    texts = [_generated(folder / RECORDING, process, graph) for folder in (old, new)]
    if not all(texts):
        return None
    was, now = (text.split("\n") for text in texts)
    at = next((at for at, pair in enumerate(zip_longest(was, now)) if pair[0] != pair[1]), None)
    if at is None:
        return {"equal": True, "line": None, "old": None, "new": None}
    rows = [lines[at].strip()[:_LONGEST_ROW] if at < len(lines) else None for lines in (was, now)]
    return {"equal": False, "line": at + 1, "old": rows[0], "new": rows[1]}


def _generated(recording: Path, process: int, graph: int) -> str:
    try:
        run = load(recording)
        keys = {frame.id: frame.key.process for frame in run.frames}
        processes = sorted({keys[item.frame] for item in run.graphs if item.kind == "dynamo" and item.frame in keys})
        graphs = [item for item in run.graphs if item.kind == "dynamo" and keys.get(item.frame) == processes[process]]
        found = [
            read_payload(listing.text)
            for listing in run.listings
            if listing.kind == "output_code" and listing.frame == graphs[graph].frame and listing.attempt == graphs[graph].attempt
        ]
    except (DynadiagError, IndexError):
        return ""
    return "\n".join(found)
