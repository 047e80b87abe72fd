"""Whether the file of a reduced script shows the failure in fresh processes. Without torch."""

from __future__ import annotations

from dynadiag.reduce import proving
from dynadiag.reduce.failure import Failure
from dynadiag.reduce.messages import without_accidents
from dynadiag.reduce.scripts.writing import guarded_name

_SIGNS = {"graph_break": "AssertionError: graph break", "cudagraph_skip": "AssertionError: cudagraph skip"}


def prove(source: str, failure: Failure, *, timeout_s: float, runs: int = proving.RUNS) -> proving.Proof:
    """Run the source `runs` times, each in a fresh process and an empty directory."""
    return proving.proof_by(source, failure, lambda: proving.run_fresh(source, timeout_s=timeout_s), shows, runs=runs)


def shows(failure: Failure, status: int | None, output: str) -> bool:
    """Whether a run that ended so shows the failure."""
    if failure.kind == "graph_break":
        return status == 1 and f"{_SIGNS['graph_break']}" in output and _reason(failure) in without_accidents(output)
    if failure.kind == "recompile":
        _, raised, said = output.rpartition("RecompileError" if "RecompileError" in output else "AssertionError: recompile")
        return status == 1 and bool(raised) and guarded_name(failure) in said
    if failure.kind == "fallback":
        return status == 1 and ("AssertionError: eager fallback" in output or "FailOnRecompileLimitHit" in output)
    if failure.kind in _SIGNS:
        return status == 1 and _SIGNS[failure.kind] in output
    return proving.shows(failure, status, output)


def _reason(failure: Failure) -> str:
    """The first line without the id: torch's name for the break."""
    first = failure.message.splitlines()[0]
    return without_accidents(first.partition(" ")[2] if first.startswith("GB") else first)
