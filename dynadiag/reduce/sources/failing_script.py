"""A failing script: run once to find the compile or the call that fails, once more to capture that graph alone. Without torch."""

from __future__ import annotations

import contextlib
import math
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from dynadiag.capture.graph_capture import ALWAYS, CALLING, COMPILING, EVERY, STATE, VARIABLE, CaptureSettings
from dynadiag.errors import DynadiagError, NothingFoundError
from dynadiag.json_lines import value_of
from dynadiag.private_view.view import View
from dynadiag.record import RecordOptions, RecordResult, Target, record
from dynadiag.reduce.core.failure import Said, said_by

_LEAST_RUN_S = 30.0
NO_GRAPH_FAILED = "no-graph-failed"
"""The slug of what is raised where the script fails, but in no compile and no call of a graph."""
NOT_CAPTURED = "not-captured"
_PHASES = {COMPILING: "compile", CALLING: "call"}


@dataclass(frozen=True, kw_only=True)
class Suspect:
    """Where a script failed: the number of the graph in its process, in `phase`, at its `call`-th call; `title` says how.

    `said` is what the exception said, None where it was none; `pid` is the process, None where it is not known; `hangs`: it did not end.
    """

    graph: int
    phase: str
    call: int
    title: str
    said: Said | None = None
    pid: int | None = field(default=None, compare=False)
    hangs: bool = field(default=False, compare=False)


@dataclass(frozen=True, kw_only=True)
class CaptureOptions:
    """How to run the script. `every` captures each graph at its first `calls` calls; `always` at each call, so that one run is enough.

    `quiet` keeps what the script prints in a file; `say` is told which run begins. With a `view` the user's files are afterwards as they
    were.
    """

    python: str | None = None
    timeout_s: float | None = None
    every: bool = False
    calls: int = 1
    always: bool = False
    quiet: bool = False
    say: Callable[[str], None] = lambda text: None
    view: View | None = None


def find_and_capture(target: Target, out: Path, options: CaptureOptions) -> tuple[Suspect | None, list[Path]]:
    """Run the script twice; gives what failed in the first run and the folders of the captured graphs, the most suspicious first.

    A graph whose compiler raised is there after the first run.

    With `always` it runs once; with `every` too, and nothing need fail.

    Raises NothingFoundError (exit status 1) when nothing failed, or when the failure does not come back; UsageError, UnreadableInputError
    or OutputError when the script cannot run.
    """
    if options.every:
        options.say("run 1 of the script: capturing each graph at its first call")
        folder, result = _run(target, out, "capture", CaptureSettings(str(out / "capture"), graph=EVERY, calls=options.calls), options)
        return _suspect(folder, result) or _ended_badly(result), _whole(folder)
    if options.always:
        return _found_and_captured(target, out, options)
    options.say("run 1 of the script: looking for the compilation or call that fails")
    began = time.time()
    folder, result = _run(target, out, "first-run", CaptureSettings(str(out / "first-run")), options)
    suspect = _what_failed(folder, result)
    if suspect.phase == "compile" and len(_region(folder, suspect)) <= 1 and (captured := _captured_at_once(folder, suspect)):
        return suspect, captured
    options.say(f"run 2 of the script: capturing graph {suspect.graph} (its output goes to {out / 'capture' / 'output.txt'})")
    call = suspect.call if suspect.phase != "compile" else 0
    wanted = CaptureSettings(str(out / "capture"), graph=suspect.graph, call=call, region=_region(folder, suspect))
    options, limit_s = replace(options, quiet=True), _time_to_come_again(suspect, folder, began)
    for timeout_s in ([limit_s] if limit_s < (options.timeout_s or 0.0) else []) + [options.timeout_s]:
        folder, again = _run(target, out, "capture", wanted, replace(options, timeout_s=timeout_s))
        second = _suspect(folder, again)
        if second is not None and (second.graph, second.phase) == (suspect.graph, suspect.phase):
            break
    else:
        raise NothingFoundError(f"the failure did not recur: it occurred in 1 of 2 runs ({suspect.title})", exit_code=1)
    return suspect, _captured(folder, second, "the second run behaved differently")


def _time_to_come_again(suspect: Suspect, folder: Path, began: float) -> float:
    """Seconds after which a compile that hangs has surely begun once more: three times what it took, and half a minute.

    It begins with the last that the process wrote. Without end for a call, which leaves nothing behind.
    """
    written = [path.stat().st_mtime for path in folder.glob("graphs-*.jsonl")]
    return 3 * (max(written) - began) + _LEAST_RUN_S if suspect.hangs and suspect.phase == "compile" and written else math.inf


def _region(folder: Path, suspect: Suspect) -> tuple[int, ...]:
    """The graphs up to the suspect that Dynamo made of the same code, as the process said in which they were compiled."""
    graph = suspect.graph
    for path in folder.glob(f"graphs-{suspect.pid or '*'}.jsonl"):
        regions: dict[int, int] = {}
        for line in path.read_text("utf-8", errors="replace").splitlines():
            with contextlib.suppress(ValueError, KeyError, TypeError):
                said = value_of(line)
                regions[int(said["graph"])] = int(said["region"])
        if graph in regions:
            return tuple(number for number, region in regions.items() if region == regions[graph] >= 0 and number <= graph)
    return ()


def _found_and_captured(target: Target, out: Path, options: CaptureOptions) -> tuple[Suspect, list[Path]]:
    """What failed in one run, and its graph with the inputs of its first call that failed, or of its last; the other graphs are deleted."""
    folder, result = _run(target, out, "capture", CaptureSettings(str(out / "capture"), graph=ALWAYS), options)
    suspect = _what_failed(folder, result)
    suspect = next((item for item in _all_failures(folder) if item.graph == suspect.graph), suspect)
    captured = _captured(folder, suspect, "it was not complete when the script ended")
    for path in folder.glob("graph-*"):
        if path not in captured:
            shutil.rmtree(path, ignore_errors=True)
    return suspect, captured


def _captured_at_once(folder: Path, suspect: Suspect) -> list[Path]:
    """The graph that the first run kept because its compiler raised; none where it was ended or that could not be written."""
    graphs = [path for path in _whole(folder) if _number(path) == suspect.graph]
    return [path for path in graphs if _owner(path) == suspect.pid]


def _what_failed(folder: Path, result: RecordResult) -> Suspect:
    suspect = _suspect(folder, result)
    if suspect is None:
        slug = NO_GRAPH_FAILED if result.exit_status or result.signal or result.timed_out else None
        raise NothingFoundError(_why_nothing(folder, result), slug=slug, exit_code=1)
    return suspect


def _captured(folder: Path, suspect: Suspect, otherwise: str) -> list[Path]:
    """The suspected graph of the process that failed; of any process where none says that it is its own."""
    graphs = [path for path in _whole(folder) if _number(path) == suspect.graph]
    captured = [path for path in graphs if _owner(path) == suspect.pid] or graphs
    if not captured:
        why = f"the failing graph could not be captured: {_problems(folder) or otherwise}"
        raise NothingFoundError(why, slug=NOT_CAPTURED, exit_code=1)
    return captured


def _run(target: Target, out: Path, name: str, settings: CaptureSettings, options: CaptureOptions) -> tuple[Path, RecordResult]:
    folder = out / name
    folder.mkdir(parents=True, exist_ok=True)
    how = RecordOptions(out=folder / "run", force=True, python=options.python, timeout_s=options.timeout_s)
    output = folder / "output.txt" if options.quiet else None
    # The recorder's bootstrap, which runs in the script's process, also starts the capture.
    view = None if options.view is None else options.view.and_passed(out)
    result = record(target, replace(how, output=output, environment={VARIABLE: settings.dumps()}, view=view))
    if result.told_to_end is not None:
        raise DynadiagError("interrupted while the script ran", slug="interrupted", exit_code=128 + result.told_to_end)
    if result.interrupted:
        raise KeyboardInterrupt
    return folder, result


def _suspect(folder: Path, result: RecordResult) -> Suspect | None:
    """What failed: the exception that ended the script, else what ran when it was killed, else a failure that the script survived."""
    failures = _all_failures(folder)
    if failures:
        return failures[-1] if result.exit_status else failures[0]
    states = [(*state, _pid(path)) for path in folder.glob("state-*") if (state := _state(path)) is not None]
    killed = f"the process was killed by {result.signal}" if result.signal else f"the process exited with status {result.exit_status}"
    title = "it hung: it did not finish within the time limit (--timeout)" if result.timed_out else killed
    for code, graph, call, pid in states:
        if code in _PHASES and (result.signal or result.timed_out or result.exit_status):
            return Suspect(graph=graph, phase=_PHASES[code], call=call, title=title, pid=pid, hangs=result.timed_out)
    called = [(graph, call, pid) for code, graph, call, pid in states if code not in _PHASES and call > 0]
    if called and result.exit_status:
        # After a call: the backward of the graph that was called last, if it is a graph at all.
        graph, call, pid = called[-1]
        return Suspect(graph=graph, phase="after", call=call, title=f"exit status {result.exit_status}", pid=pid)
    return None


def _ended_badly(result: RecordResult) -> Suspect | None:
    """A failure outside of every graph, which the script may show."""
    if not (result.exit_status or result.signal or result.timed_out):
        return None
    return Suspect(graph=0, phase="script", call=0, title=f"exit status {result.exit_status}, in no compiled call")


def _all_failures(folder: Path) -> list[Suspect]:
    return [failure for path in sorted(folder.glob("failures-*.jsonl")) for failure in _failures(path)]


def _failures(path: Path) -> Iterator[Suspect]:
    for line in path.read_text("utf-8", errors="replace").splitlines():
        with contextlib.suppress(ValueError, KeyError, TypeError):
            found = value_of(line)
            said = said_by(str(found["exception"]), str(found["message"])) if "exception" in found else None
            graph, call = int(found["graph"]), int(found["call"])
            yield Suspect(graph=graph, call=call, phase=str(found["phase"]), title=str(found["title"]), said=said, pid=_pid(path))


def _state(path: Path) -> tuple[int, int, int] | None:
    raw = path.read_bytes()
    if len(raw) < STATE.size:
        return None
    state, graph, call = STATE.unpack_from(raw)
    return (state, graph, call) if graph >= 0 else None


def _whole(folder: Path) -> list[Path]:
    found = [path for path in folder.glob("graph-*") if (path / "inputs.pt").exists() and (path / "setting.json").exists()]
    return sorted(found, key=lambda path: (_number(path), path.name))


def _number(path: Path) -> int:
    """Of `graph-3`, and of `graph-3.<pid>` where several processes have one."""
    return int(path.name.removeprefix("graph-").partition(".")[0])


def _owner(path: Path) -> int | None:
    """The process that captured it."""
    try:
        pid = value_of((path / "setting.json").read_text("utf-8"))["pid"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return pid if type(pid) is int else None


def _pid(path: Path) -> int | None:
    """Of `failures-<pid>.jsonl` and the like."""
    number = path.stem.rpartition("-")[2]
    return int(number) if number.isdecimal() else None


def _problems(folder: Path) -> str:
    try:
        return (folder / "problems.txt").read_text("utf-8").strip().splitlines()[-1]
    except (OSError, IndexError):
        return ""


def _why_nothing(folder: Path, result: RecordResult) -> str:
    graphs = any(folder.glob("state-*"))
    if result.exit_status == 0:
        said = "no graph was compiled" if not graphs else "every graph compiled and ran"
        return f"nothing failed: nothing to reduce ({said}; for wrong results use --kind wrong_result)"
    where = "after compiled calls, but in none of them" if graphs else "before any graph was compiled"
    ended = "did not end within the time limit" if result.timed_out else f"failed (exit status {result.exit_status})"
    return f"the script {ended} {where}: only failures of compiled graphs can be reduced"
