"""`dynadiag numerics SCRIPT` without its printing: the script runs once, its graphs are captured, a worker compares them. No torch."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from dynadiag.children.forked import START_WITHOUT_GC
from dynadiag.children.worker import Worker
from dynadiag.errors import DynadiagError, NothingFoundError, UsageError
from dynadiag.numerics.result import NumericsResult
from dynadiag.numerics.whole_run import WholeRun
from dynadiag.record import Target
from dynadiag.reduce.session import copy_compiler_probes, users_cache, worker_environment
from dynadiag.reduce.sources.failing_script import CaptureOptions, find_and_capture

Advance = Callable[[int, int], None]
_ALONE = (
    "No call of the graph alone, on the inputs that it had, is a fault: what it gives then depends on something else, such as its earlier "
    "calls or memory that others write, or many small differences add up."
)
_MOST_CALLS = 20
"""Of so many calls of the guilty graph the inputs are kept."""


@dataclass(frozen=True, kw_only=True)
class NumericsOptions:
    """`graph` is the number of the only graph to compare, None for the first `most` of them, each at its first `calls` calls; `load` a
    file of the user's that is run in the comparing process first. With `steps` the losses of so many steps are compared first, and of the
    graphs only the one that makes them leave eager's. `timeout_s` is for the script, and for each graph.
    """

    graph: int | None = None
    most: int = 20
    calls: int = 1
    steps: int | None = None
    load: Path | None = None
    timeout_s: float = 300.0


def compare_script(
    program: Target, directory: Path, options: NumericsOptions, *, advance: Advance = lambda done, of: None
) -> NumericsResult:
    """Run the script, then compare the graphs that it compiled, each with the inputs of its first calls.

    Raises NothingFoundError when nothing was compiled, UsageError for a graph that is not there.
    """
    suspect, folders = find_and_capture(program, directory, CaptureOptions(every=True, calls=options.calls, timeout_s=options.timeout_s))
    if not folders:
        raise NothingFoundError("no graph was compiled and called: there is nothing to compare")
    chosen = [folder for folder in folders if options.graph in (None, _number(folder))]
    if not chosen:
        raise UsageError(f"there is no graph {options.graph}: the script compiled {_number(folders[0])} to {_number(folders[-1])}")
    left = chosen[options.most :] if options.graph is None else []
    notes = [f"the script failed: {suspect.title}"] if suspect is not None else []
    if left:
        notes.append(f"{len(left)} of {len(chosen)} graphs were not compared: --graphs {len(chosen)} compares them too")
    torch_version, entries = _compared(chosen[: len(chosen) - len(left)], directory, options, advance)
    return NumericsResult(
        program=program.argv[0], torch=torch_version, graphs=tuple(entries), notes=tuple(notes), failed=suspect is not None
    )


def compare_losses(
    program: Target, directory: Path, options: NumericsOptions, *, say: Callable[[str], None], advance: Advance = lambda done, of: None
) -> NumericsResult:
    """Run the script with its losses watched; where they leave eager's by the compilation of one graph, compare that graph's calls.

    Raises NothingFoundError when there are no losses or no graphs.
    """
    assert options.steps is not None
    run = WholeRun(program, directory / "losses", options.steps, options.timeout_s, say)
    curve = run.compare()
    if curve["graph"] is None or curve["leaves_at"] is None:
        return NumericsResult(program=program.argv[0], torch=version("torch"), graphs=(), curve=curve)
    say(f"run {len(curve['runs']) + 1} of the script: capturing graph {curve['graph']}")
    of_graph = replace(options, graph=curve["graph"], calls=max(options.calls, min(curve["leaves_at"], _MOST_CALLS)))
    result = compare_script(program, directory, of_graph, advance=advance)
    return replace(result, curve=curve, notes=result.notes if result.with_status("fault") else (*result.notes, _ALONE))


def _number(folder: Path) -> int:
    """Of `graph-3`, and of `graph-3.<pid>` where several processes have one."""
    return int(folder.name.removeprefix("graph-").partition(".")[0])


def _compared(captures: list[Path], directory: Path, options: NumericsOptions, advance: Advance) -> tuple[str | None, list[dict[str, Any]]]:
    job = {
        "captures": [str(folder) for folder in captures],
        "out": str(directory),
        "load": None if options.load is None else str(options.load.resolve()),
        "timeout_s": options.timeout_s,
        "calls": options.calls,
        "resume": False,
        "parent": os.getpid(),
    }
    job_file = directory / "job.json"
    job_file.write_text(json.dumps(job), encoding="utf-8")
    copy_compiler_probes(users_cache(), directory / "compile-cache")
    command = [sys.executable, "-c", START_WITHOUT_GC, "dynadiag.numerics.worker", str(job_file)]
    torch_version: str | None = None
    found: dict[str, dict[str, Any]] = {}
    with (directory / "worker.log").open("wb") as log:
        worker = Worker(command, log=log, environment=worker_environment(directory), is_asked=False, alone_in="group")
    with contextlib.closing(worker):
        try:
            for message in worker.messages():
                if "error" in message:
                    raise DynadiagError(str(message["error"]), slug="not-compared", exit_code=int(message.get("exit_code", 2)))
                torch_version = message.get("torch", torch_version)
                if "graph" in message:
                    found[message["graph"]] = message
                    advance(len(found), len(captures))
            worker.wait()
        finally:
            worker.kill()
    missing = {"status": "skipped", "why_not": f"the comparing process ended before it; see {directory / 'worker.log'}"}
    return torch_version, [found.get(folder.name, {"graph": folder.name, **missing}) for folder in captures]
