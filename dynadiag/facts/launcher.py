"""What torchrun says of the ranks that it started: the first that failed, as it saw it."""

from __future__ import annotations

import re

from dynadiag.model.run import Run

_FIRST = re.compile(
    r"Root Cause \(first observed failure\):\s*\[\d{1,6}\]:[^\[]{0,400}?\brank\s*: (\d{1,6})\b"
    r"[^\[]{0,200}?\bexitcode\s*: (-?\d{1,5})\b[^\n(]*(?:\(pid: \d{1,9}\))?[^\n(]*(?:\((SIG\w{1,12})\))?"
)  # the text of torch.distributed.elastic.multiprocessing.errors.ChildFailedError, 2.6 to 2.15


def first_failed(run: Run) -> tuple[int, str] | None:
    """The rank that torchrun saw fail first, with how in words; None where no process of the run says so."""
    for problem in run.problems:
        found = _FIRST.search(problem.text) if problem.kind == "uncaught" and "ChildFailedError" in problem.text[:200] else None
        if found is not None:
            return int(found[1]), f"by {found[3]}" if found[3] else f"with exit status {found[2]}"
    return None
