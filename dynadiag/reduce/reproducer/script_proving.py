"""Whether the file of a reduced script shows the failure in fresh processes. Without torch."""

from __future__ import annotations

import ast

from dynadiag.reduce.core.failure import Failure
from dynadiag.reduce.core.failure import shows as failure_shows
from dynadiag.reduce.core.messages import without_accidents
from dynadiag.reduce.reproducer import proving
from dynadiag.reduce.reproducer.script_file import guarded_name
from dynadiag.reduce.scripts.oracle import SEEDS

_SIGNS = {"graph_break": "AssertionError: graph break", "cudagraph_skip": "AssertionError: cudagraph skip"}


def prove(source: str, failure: Failure, *, timeout_s: float, runs: int = proving.RUNS) -> proving.Proof:
    """Run the source `runs` times, each in a fresh process and an empty directory: as it is, then with other random numbers."""
    further = proving.template_for(source, failure)

    def run(number: int) -> tuple[int | None, str]:
        seed = SEEDS[(number - 1) % len(SEEDS)] if number else 0
        return proving.run_fresh(seeded(source, seed), timeout_s=timeout_s, variables={}, template=further if number else None)

    return proving.proof_by(source, failure, run, shows, runs=runs)


def seeded(source: str, seed: int) -> str:
    """The source with torch's generator set behind the first import of torch; itself for 0, or where it imports none."""
    if seed == 0:
        return source
    lines = source.splitlines(keepends=True)
    for node in ast.parse(source).body:
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [one.name for one in getattr(node, "names", [])]
        if isinstance(node, ast.Import | ast.ImportFrom) and any(str(name).partition(".")[0] == "torch" for name in names):
            lines.insert(node.end_lineno or node.lineno, f'__import__("torch").manual_seed({seed})\n')
            break
    return "".join(lines)


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
    return failure_shows(failure, status, output)


def _reason(failure: Failure) -> str:
    """The first line without the id: torch's name for the break."""
    first = failure.message.splitlines()[0]
    return without_accidents(first.partition(" ")[2] if first.startswith("GB") else first)
