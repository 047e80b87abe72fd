"""Functions that Dynamo tried to compile again and again, and never did."""

from __future__ import annotations

from collections.abc import Mapping

from dynadiag.facts.lookups import frames_by_code
from dynadiag.facts.user_frames import is_own_file, of_last_run, resume_line
from dynadiag.model.run import Frame, Run

_FEWEST = 3
_NOT_COMPILED = frozenset(("skipped", "failed"))


@of_last_run
def failed_attempts(run: Run) -> Mapping[str, int]:
    """How often each of the user's functions was tried that was not compiled once, by name; those that were tried three times at least.

    torch gives some breaks up for good at the first attempt, and tries others again in each call (`autograd.grad`, 2.15).
    """
    found: dict[str, int] = {}
    for frames in frames_by_code(run).values():
        first = frames[0]
        if len(frames) >= _FEWEST and _is_own_function(first, run) and all(frame.outcome in _NOT_COMPILED for frame in frames):
            found[str(first.name)] = found.get(str(first.name), 0) + len(frames)
    return found


def _is_own_function(frame: Frame, run: Run) -> bool:
    return frame.file is not None and frame.name is not None and is_own_file(frame.file, run) and resume_line(frame.name) is None


@of_last_run
def failed_dynamic(run: Run) -> frozenset[str]:
    """The compilations that failed with sizes that were symbols, of functions of which a version with fixed sizes was compiled."""
    symbolic = {symbol.frame for symbol in run.symbols}
    found: set[str] = set()
    for frames in frames_by_code(run).values():
        if any(frame.outcome in ("compiled", "broke") and frame.id not in symbolic for frame in frames):
            found.update(frame.id for frame in frames if frame.outcome == "failed" and frame.id in symbolic)
    return frozenset(found)
