"""A graph of a run or a log as a capture: its text and what was recorded with it; inputs are made up when it is loaded. No torch here."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dynadiag import trace
from dynadiag.digests.texts import untab
from dynadiag.errors import NothingFoundError, UnreadableInputError, UsageError
from dynadiag.files import read_small, write_inside
from dynadiag.json_lines import value_of
from dynadiag.model import Graph, Run
from dynadiag.record import ownership
from dynadiag.record.directory import MARKER, clear, is_ours, is_run_directory
from dynadiag.reduce.sources.torch_repro import read_torch_repro, write_capture
from dynadiag.torch_compat.dynamo.recorded_options import usable_options
from dynadiag.trace.records import scan
from dynadiag.trace.sources import OpenLog, find_sources

MOST_GRAPHS = 200
_MOST_RUNNABLES = 100


def capture_recorded(path: Path, graph_id: str, out: Path, *, backend: str | None) -> Path:
    """Write a capture folder for one graph of a recording.

    `backend` is the one to compile with; None takes the only one that was recorded, or inductor. Raises UnreadableInputError for a log that
    cannot be read, UsageError for a graph that it does not have, NothingFoundError when the log does not contain the text of the graph.
    """
    run = trace.load(path)
    chosen = next((graph for graph in run.graphs if graph.id == graph_id), None)
    if chosen is None:
        known = f"it has {run.graphs[0].id} to {run.graphs[-1].id}" if run.graphs else "it contains no captured graph"
        raise UsageError(f"{path} has no graph {graph_id!r}: {known}")
    return _capture(run, chosen, out / "capture" / "graph-0", backend)


def capture_all_recorded(path: Path, out: Path, *, backend: str | None) -> list[Path]:
    """Write a capture folder for each graph that may have failed: those of frames that failed first, then the others of Dynamo, then the
    scripts that torch wrote into the log (`fx_graph_runnable`).

    Raises UnreadableInputError for a log that cannot be read, NothingFoundError when it holds no graph.
    """
    run = trace.load(path)
    failed = {frame.id for frame in run.frames if frame.outcome == "failed"}
    graphs = [graph for graph in run.graphs if graph.kind == "dynamo" and graph.text is not None]
    graphs.sort(key=lambda item: item.frame not in failed)
    folders = [_capture(run, element, out / "capture" / f"graph-{number}", backend) for number, element in enumerate(graphs[:MOST_GRAPHS])]
    for text in _runnable_texts(path):
        with contextlib.suppress(UnreadableInputError):
            folder = out / "capture" / f"graph-{len(folders)}"
            folders.append(write_capture(read_torch_repro(text), folder, near=None, backend=backend))
    if not folders:
        raise NothingFoundError(f"{path} contains the text of no graph: there is nothing to reduce", exit_code=1)
    return folders


def _runnable_texts(path: Path) -> list[str]:
    """The scripts that torch wrote of what inductor compiled, in a run, a log or a folder of logs.

    Raises UnreadableInputError when there is no log.
    """
    found: list[str] = []
    for log in find_sources(path).logs:
        with OpenLog(log) as stream:
            for piece in scan(stream, lambda _: None):
                _, kind, name, _ = piece.match.groups()
                if kind == b"artifact" and name == b"fx_graph_runnable" and piece.kept and len(found) < _MOST_RUNNABLES:
                    found.append(untab(piece.payload()).decode("utf-8", "replace"))
    return found


def _capture(run: Run, chosen: Graph, folder: Path, backend: str | None) -> Path:
    if chosen.text is None:
        raise NothingFoundError(f"the log does not contain the text of {chosen.id}: {chosen.why_not or 'unknown reason'}", exit_code=1)
    details = trace.graph_details(chosen.details) if chosen.details is not None else None
    folder.mkdir(parents=True, exist_ok=True)
    write_inside(folder, "graph.txt", trace.read_payload(chosen.text))
    write_inside(folder, "details.json", json.dumps(details))
    write_inside(folder, "setting.json", json.dumps(_setting(run, chosen, details or {}, backend)))
    return folder


def _setting(run: Run, chosen: Graph, details: Mapping[str, Any], backend: str | None) -> dict[str, Any]:
    recorded = {call.backend for call in run.compile_calls if call.backend is not None and not call.disabled}
    only = next(iter(recorded)) if len(recorded) == 1 else None
    frame = run.frame(chosen.frame)
    process = next((item for item in run.processes if frame is not None and item.index == frame.key.process), None)
    configs, left = usable_options(
        (f"{area}.{name}", value)
        for area, options in (process.config if process is not None else {}).items()
        for name, value in (options.items() if isinstance(options, Mapping) else ())
        if area in ("dynamo", "functorch", "inductor")
    )
    return {
        "backend": backend or only or "inductor",
        "grad": details.get("grad") is not False,
        "inference": details.get("inference") is True,
        "deterministic": details.get("deterministic") is True,
        "configs": configs,
        "configs_lost": left,
    }


_LARGEST_BYTES = 64 << 20
_SETTING = "setting.json"


def can_resume(out: Path | None, say: Callable[[str], None]) -> bool:
    """Whether there is something to go on with; a folder of ours that was left before anything was captured is begun anew, which is said.

    Raises UsageError without a folder, UnreadableInputError for one that is not ours.
    """
    if out is None:
        raise UsageError("--resume needs --out DIR, the directory of the earlier run")
    if not is_run_directory(out):
        raise UnreadableInputError(f"{out} contains no reduction to resume")
    if not is_ours(out):
        # It holds compiled code and sources that going on would run.
        raise UnreadableInputError(
            f"{out} was not created here by you, or was moved: resuming would run what it contains; start without --resume"
        )
    if (out / "job.json").exists():
        return True
    if any(entry.name != MARKER and not entry.is_dir() for entry in out.iterdir()):  # a reduction has folders alone until then
        raise UnreadableInputError(f"{out} contains no reduction to resume, but another command's files")
    say(f"the earlier run in {out} ended before a failing graph was captured: starting over")
    clear(out)
    return False


def is_script_job(directory: Path) -> bool:
    """Whether the earlier run in this directory reduced a script."""
    try:
        return "script" in value_of(read_small(directory / "job.json", _LARGEST_BYTES))
    except (OSError, ValueError, TypeError):
        return False


def captures_to_resume(directory: Path) -> list[Path]:
    """The captured graphs of an earlier run in `directory`.

    A backend that is a function of the script was stored as its source. A folder may come from a stranger, so that source is run only where
    nobody changed it since this user captured it on this machine (`seals_of`). Raises UnreadableInputError if not, and for a damaged or
    foreign job.
    """
    try:
        job = value_of(read_small(directory / "job.json", _LARGEST_BYTES))
        folders = [Path(path) for path in job["captures"]]
        inside = all(
            folder.resolve().is_relative_to(directory.resolve()) and not any(file.is_symlink() for file in folder.iterdir())
            for folder in folders
        )
        changed = inside and any(_holds_source(folder) and not _is_as_captured(folder, job.get("seals")) for folder in folders)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UnreadableInputError(f"{directory} contains no reduction that can be resumed: {error}") from error
    if not inside:
        raise UnreadableInputError(f"{directory}/job.json refers to captured graphs outside {directory}: they are not read")
    if changed:
        raise UnreadableInputError(
            f"{directory} stores the source of a function (the backend, an option), and is not as you captured it on this machine: "
            "it is not run; start again without --resume"
        )
    return folders


def seals_of(captures: Sequence[Path]) -> dict[str, Any]:
    """What says later, in `job.json`, that these folders are as they were when they were captured, by this user on this machine."""
    return {str(folder): ownership.seal(folder) for folder in captures}


def _is_as_captured(folder: Path, seals: object) -> bool:
    said = seals.get(str(folder)) if isinstance(seals, dict) else None
    return ownership.is_sealed(folder, said, [folder / _SETTING])


def _holds_source(folder: Path) -> bool:
    """Whether loading the capture runs text that it holds: of the backend, or of a function that is an option."""
    state = value_of(read_small(folder / _SETTING, _LARGEST_BYTES))
    sources = (state.get("backend_source"), *(value.get("source") for _, value in state.get("configs", ()) if isinstance(value, dict)))
    return any(source is not None for source in sources)
