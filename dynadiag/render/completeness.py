"""Whether a run was recorded to its end, and if not, why."""

from __future__ import annotations

from dynadiag.model.run import Process, Run, RunInfo

FOREIGN = "not known: the log was not recorded by dynadiag"


def completeness(run: Run) -> tuple[bool | None, str | None]:
    """(True, None) for a run recorded to its end, (False, reason) when it was cut short, (None, reason) when nobody knows."""
    why = _stopped(run.info) or _capped(run)
    if why:
        return False, why
    if run.info.exit_status is None:
        return None, FOREIGN
    lost = next((process for process in run.processes if not process.finished), None)
    if run.info.exit_status != 0 and lost is not None:
        return False, f"{_called(lost)} ended without a normal exit"
    return True, None


def _stopped(info: RunInfo) -> str | None:
    reasons = {
        "the script is still running": info.running,
        "the time limit ended the script": info.timed_out,
        "the user interrupted the script": info.interrupted,
        "the script was ended because nothing new compiled": info.stopped_stable,
        f"the script was killed by {info.signal}": info.signal is not None,
    }
    return next((reason for reason, applies in reasons.items() if applies), None)


def _capped(run: Run) -> str | None:
    if any(problem.kind == "log_limit" for problem in run.problems):
        return "the log reached its size limit"
    if any(problem.kind == "recorder" for problem in run.problems):
        return "the recorder could not write everything (see the notes)"
    return None


def _called(process: Process) -> str:
    rank = "" if process.rank is None else f" (rank {process.rank})"
    return f"process {process.index if process.pid is None else process.pid}{rank}"
