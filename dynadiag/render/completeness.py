"""Whether a run was recorded to its end, and if not, why."""

from __future__ import annotations

from dynadiag.model.run import Process, Run, RunInfo

FOREIGN = "not known: the log was not recorded by dynadiag"
_ALONE = "not known: a log alone does not say how the program ended"


def completeness(run: Run) -> tuple[bool | None, str | None]:
    """(True, None) for a run recorded to its end, (False, reason) when it was cut short, (None, reason) when nobody knows."""
    why = _stopped(run.info) or _capped(run)
    if why:
        return False, why
    if run.info.exit_status is None:
        return None, not_ended(run.info) or (FOREIGN if all(process.pid is None for process in run.processes) else _ALONE)
    ended = {(process.pid, process.parent_pid) for process in run.processes if process.finished and process.pid is not None}
    # After os.execv the same process goes on with a log of its own, and only the last program in it comes to its exit.
    lost = next((item for item in run.processes if not item.finished and (item.pid, item.parent_pid) not in ended), None)
    if lost is None:
        return True, None
    if run.info.exit_status != 0:
        return False, f"{_called(lost)} ended without a normal exit"
    how = "it called os._exit or was killed, which is how multiprocessing.Pool ends its workers"
    return None, f"not known: {_called(lost)} ended without a normal exit ({how})"


def why_cut_short(run: Run) -> str | None:
    """Why records are missing that nothing will tell of, so that nothing can be judged; None for a run that the program's own end, or the
    one that somebody asked us for, cut short.
    """
    info = run.info
    complete, why = completeness(run)
    by_its_end = info.timed_out or info.stopped_stable or info.signal is not None or info.exit_status not in (None, 0)
    return why if complete is False and (not by_its_end or info.running or info.interrupted) else None


def not_ended(info: RunInfo) -> str | None:
    """Why it is not known how a run of ours ended; None when it is, and for a foreign log."""
    reasons = {
        "the script is still running": info.running,
        "the program ended inside dynadiag.observe, without a normal exit": info.killed and info.observed,
        "dynadiag was killed while the script ran": info.killed,
        "not known: the script had not ended when this was written; whether it still runs cannot be seen from this machine": info.unended,
    }
    return next((reason for reason, applies in reasons.items() if applies), None)


def _stopped(info: RunInfo) -> str | None:
    if info.stopped:
        return info.stopped[0] + (f" (and in {len(info.stopped) - 1} more)" if len(info.stopped) > 1 else "")
    reasons = {
        not_ended(info): info.running or info.killed,
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
        return "a recorder hook failed, so records may be missing (see the notes)"
    return None


def _called(process: Process) -> str:
    rank = "" if process.rank is None else f" (rank {process.rank})"
    return f"process {process.index if process.pid is None else process.pid}{rank}"
