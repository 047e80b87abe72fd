"""A recording replayed in another process, its answers collected as they come. No torch here."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dynadiag import report, trace
from dynadiag.children.worker import Worker, last_line_of
from dynadiag.errors import NothingFoundError, TorchUnsupportedError, UnreadableInputError, UsageError
from dynadiag.model import Run
from dynadiag.parity.result import ParityResult, findings_of
from dynadiag.passes.find_parity import TITLES
from dynadiag.passes.find_whole_calls import WHOLE_CALL_CODES
from dynadiag.record.probe import environment_afterwards
from dynadiag.render.parity_words import details, verdict
from dynadiag.scratch import scratch

_MAIN = Path(__file__).with_name("offline_main.py")
Advance = Callable[[int, int], None]


@dataclass(frozen=True, kw_only=True)
class OfflineOptions:
    """`graphs` names the graphs to replay, None for all; `python` the interpreter that has torch; `tests` a folder to write tests into;
    `load` a file of the user's that registers custom operators: it is run in the replaying process.

    `budget_s` is for all graphs together, `timeout_s` for one scenario.
    """

    graphs: frozenset[str] | None = None
    python: str = sys.executable
    budget_s: float = 600.0
    timeout_s: float = 180.0
    tests: Path | None = None
    load: Path | None = None


def replay_recording(recording: Path, options: OfflineOptions, *, advance: Advance | None = None) -> ParityResult:
    """Every Dynamo graph of a run or log replayed over its scenarios.

    Raises NothingFoundError when nothing was compiled, UsageError for a graph that is not there, TorchUnsupportedError without a torch.
    """
    run = trace.load(recording)
    _check(run, recording, options)
    graphs: list[Mapping[str, Any]] = []
    notes: list[str] = []
    version, broken = None, False
    for entry in _answers(recording, options):
        if "error" in entry:
            raise _error(str(entry["error"]))
        if "graph" not in entry:
            version, total = str(entry.get("torch")), int(entry.get("graphs", 0))
            continue
        if "broken" in entry:
            broken = True
            notes.append(str(entry["broken"]))
            continue
        graphs.append(entry)
        if advance is not None:
            advance(len(graphs), total)
    recorded = tuple(sorted({process.torch for process in run.processes if process.torch}))
    if version is not None and recorded and version not in recorded:
        notes.append(f"recorded with torch {', '.join(recorded)}, replayed with {version}")
    return ParityResult(
        recording=str(recording),
        torch=version,
        recorded_torch=recorded,
        graphs=tuple(graphs),
        findings=findings_of(graphs),
        notes=tuple(notes),
        happened=happened_in(run),
        broken=broken,
    )


def _check(run: Run, recording: Path, options: OfflineOptions) -> None:
    known = [graph.id for graph in run.graphs if graph.kind == "dynamo"]
    if not known:
        raise NothingFoundError(f"{recording} contains no graph captured by Dynamo: there is nothing to compare")
    wrong = sorted((options.graphs or frozenset()) - set(known))
    if wrong:
        raise UsageError(f"{recording} has no Dynamo graph {wrong[0]!r}; it has {', '.join(known[:20])}")


def _error(text: str) -> Exception:
    if "needs torch" in text:
        return TorchUnsupportedError(text)
    return TorchUnsupportedError(f"replaying graphs needs torch: {text}") if "no torch" in text else UnreadableInputError(text)


def _answers(recording: Path, options: OfflineOptions) -> Iterator[Mapping[str, Any]]:
    """The lines of the replaying process; one with "broken" when it ended before its time."""
    with scratch("parity") as folder:
        job = Path(folder) / "job.json"
        job.write_text(json.dumps(_job(recording, options)), encoding="utf-8")
        printed = Path(folder) / "stderr"
        command = [options.python, str(_MAIN), str(job)]
        with printed.open("wb") as log:
            try:
                worker = Worker(command, log=log, environment=environment_afterwards(), is_asked=False)
            except OSError as error:
                raise UsageError(f"{options.python} cannot be started: {error.strerror}") from None
        try:
            yield from worker.messages()
            status = worker.wait() or 0
        finally:
            worker.kill()
            worker.close()
        if status not in (0, 2, 3):
            how = f"was killed by {_signal(-status)}" if status < 0 else f"ended early with exit status {status}"
            yield {"graph": None, "broken": f"the replay {how}: {last_line_of(printed)[:300] or 'no output'}"}


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _job(recording: Path, options: OfflineOptions) -> dict[str, Any]:
    return {
        "run": str(recording.resolve()),
        "graphs": sorted(options.graphs) if options.graphs is not None else None,
        "budget_s": options.budget_s,
        "timeout_s": options.timeout_s,
        "tests": str(options.tests.resolve()) if options.tests is not None else None,
        "load": str(options.load.resolve()) if options.load is not None else None,
    }


def happened_in(run: Run) -> Mapping[str, Any] | None:
    """The verdict in words, and the findings on calls that really differed; None when no calls were compared in the run."""
    if not run.parity and not run.whole_calls:
        return None
    built = report.build(run)
    if built.parity is None:
        return None
    findings = [
        {
            "code": finding.code,
            "severity": finding.severity,
            "title": finding.title,
            "why": finding.why,
            "where": asdict(finding.where) if finding.where is not None else None,
        }
        for finding in built.findings
        if finding.code in TITLES or finding.code in WHOLE_CALL_CODES
    ]
    compared = built.parity.calls_equal + built.parity.calls_different
    return {"verdict": verdict(built.parity), "calls_compared": compared, "findings": findings, "notes": list(details(built.parity))}
