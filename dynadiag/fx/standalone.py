"""A graph from a log as a script that was tried: run in a child process, in an empty folder, with a time limit."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dynadiag import trace
from dynadiag.errors import DynadiagError, NothingFoundError, NotRebuildableError, shorten
from dynadiag.fx.inputs import FILLINGS
from dynadiag.fx.rebuild import RebuildOptions, Rebuilt, rebuild
from dynadiag.fx.running import OTHER_FACTORS, missing_device
from dynadiag.fx.script import write_script
from dynadiag.model import Graph, Run
from dynadiag.scratch import OWNER, scratch

_PASSED_ON = ("PATH", "HOME", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "TMPDIR", "SYSTEMROOT", OWNER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Standalone:
    """The script's source; `runnable` is None when it was not tried; `output` is what it printed; `why_not` why it does not run."""

    source: str
    runnable: bool | None = None
    why_not: str | None = None
    output: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TryOptions:
    """`python` is the interpreter that tries the script; `timeout_s` the seconds one try may take, None for no try."""

    python: str = sys.executable
    timeout_s: float | None = 120.0


def standalone_of(
    run: Run, graph: Graph, *, title: str, device: str | None = None, trying: TryOptions | None = None, say: Callable[[str], None]
) -> Standalone:
    """The script of a captured graph, its `title` with the graph's name behind it in the first comment; all accelerators become `device`.

    Recorded details that are damaged are not used, which is said. Raises NothingFoundError without the graph's text, NotRebuildableError.
    """
    if graph.text is None:
        raise NothingFoundError(f"the log does not contain the text of {graph.id}{f': {graph.why_not}' if graph.why_not else ''}")
    details = None
    try:
        details = None if graph.details is None else trace.graph_details(graph.details)
    except DynadiagError as error:
        say(f"the recorded details of {graph.id} are not used: {error.message}")
    frame = run.frame(graph.frame)
    named = f"{title} {graph.id}, {graph.kind} graph of {(frame.name if frame else None) or 'an unknown frame'}"
    try:
        return make_standalone(
            trace.read_payload(graph.text), details=details, title=[named], options=RebuildOptions(device=device), trying=trying
        )
    except NotRebuildableError as error:
        raise NotRebuildableError(f"{graph.id} cannot be rebuilt: {error.message}") from None


def make_standalone(
    text: str,
    *,
    details: Mapping[str, Any] | None = None,
    title: Sequence[str] = (),
    options: RebuildOptions | None = None,
    trying: TryOptions | None = None,
) -> Standalone:
    """The script of the graph in `text`, tried with other made-up values when the first do not suit it.

    Raises NotRebuildableError when the graph cannot be rebuilt at all.
    """
    trying = trying or TryOptions()
    first: Standalone | None = None
    # Lazy: the module is only written, never called, and its compiled code would take 2 KB a node.
    for rebuilt, source in _candidates(text, details, title, replace(options or RebuildOptions(), lazy=True)):
        if trying.timeout_s is None:
            return Standalone(source=source)
        missing = missing_device(rebuilt)
        if missing is not None:
            return Standalone(source=source, runnable=False, why_not=f"it needs the device {missing}, which this machine does not have")
        tried = _try(source, trying.python, trying.timeout_s)
        if tried.runnable:
            return tried
        first = first or tried
    assert first is not None
    return first


def _candidates(
    text: str, details: Mapping[str, Any] | None, title: Sequence[str], options: RebuildOptions
) -> Iterator[tuple[Rebuilt, str]]:
    """Scripts with different made-up values: all fillings for the first choice of sizes, then the other choices of sizes."""
    rebuilt = rebuild(text, details=details, options=options)
    for filling in FILLINGS:
        yield rebuilt, write_script(rebuilt, title=title, filling=filling)
    for factors in OTHER_FACTORS if rebuilt.unknown_symbols > 1 else ():
        other = rebuild(text, details=details, options=replace(options, factors=factors))
        yield other, write_script(other, title=title)


def _try(source: str, python: str, timeout_s: float) -> Standalone:
    environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    with scratch("graph") as folder:
        path = Path(folder) / "graph.py"
        path.write_text(source, encoding="utf-8")
        try:
            done = subprocess.run(
                [python, path.name],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=timeout_s,
            )
        except subprocess.TimeoutExpired:
            return Standalone(source=source, runnable=False, why_not=f"it does not finish within {timeout_s:g} s")
        except OSError as error:
            return Standalone(source=source, runnable=False, why_not=f"{shorten(python, 80)} cannot be started: {error.strerror}")
    if done.returncode == 0:
        return Standalone(source=source, runnable=True, output=done.stdout)
    lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
    return Standalone(source=source, runnable=False, why_not=f"running it ends in {shorten(lines[-1], 300)}", output=done.stdout)
