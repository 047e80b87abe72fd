"""How a recorded program failed, and whether it came so far that something could be compiled."""

from __future__ import annotations

import re

from dynadiag.errors import NothingFoundError, TorchUnsupportedError, shorten
from dynadiag.model.run import Run, RunInfo

_NO_TORCH = re.compile(r"(?:ModuleNotFoundError|ImportError): No module named 'torch'")
_LONGEST_ERROR = 200


def failure_of(info: RunInfo) -> str | None:
    """How the program failed, as what follows its name in a sentence; None for one that ended well or that we ended."""
    if info.stopped_stable or info.timed_out or info.exit_status in (None, 0):
        return None
    return f"was killed by {info.signal}" if info.signal is not None else f"ended with exit status {info.exit_status}"


def refuse_failed_start(run: Run, otherwise: str) -> None:
    """Raise for a program that failed before anything was compiled; `otherwise` is what was not done then.

    TorchUnsupportedError where its interpreter has no torch, else NothingFoundError with exit status 1: that is no program that compiles
    nothing.
    """
    refuse_missing_torch(run, otherwise)
    failed = failure_of(run.info)
    if run.frames or failed is None:
        return
    raised = next((f" ({shorten(problem.text, _LONGEST_ERROR)})" for problem in run.problems if problem.kind == "uncaught"), "")
    raise NothingFoundError(f"the program {failed}{raised} before anything was compiled, so {otherwise}", exit_code=1)


def refuse_missing_torch(run: Run, otherwise: str) -> None:
    """Raise TorchUnsupportedError for a program that ended because its interpreter has no torch."""
    if any(problem.kind == "uncaught" and _NO_TORCH.match(problem.text) for problem in run.problems) and not any(
        process.torch for process in run.processes
    ):
        raise TorchUnsupportedError(f"the Python that ran the program has no torch, so {otherwise}: pass one that has it with --python")
