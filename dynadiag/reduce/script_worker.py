"""The process that reduces a script: it has imported torch and forks a child for each question. Started by `dynadiag minify`.

    python -m dynadiag.reduce.script_worker JOB.json

Speaks as `dynadiag.reduce.graph_worker` does: a JSON line a query, at the end one with "done" or "error".
"""

from __future__ import annotations

import ast
import contextlib
import json
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

import dynadiag
from dynadiag.errors import DynadiagError, UsageError
from dynadiag.reduce.core.answer_cache import remembering
from dynadiag.reduce.core.reducer import Stopped
from dynadiag.reduce.core.template import template
from dynadiag.reduce.graph_worker import Interrupts, end_with_starter, keep_for_children, open_known, say, show
from dynadiag.reduce.reproducer.graph_outcome import WARM, write_json
from dynadiag.reduce.reproducer.script_outcome import to_json, write_first, write_report, write_reproducer
from dynadiag.reduce.scripts.inlining import join_local_modules
from dynadiag.reduce.scripts.program import Program
from dynadiag.reduce.scripts.recorded_failures import phenomena
from dynadiag.reduce.scripts.reduction import ScriptHunt, ScriptOptions, hunt_script
from dynadiag.reduce.scripts.running import own_folders
from dynadiag.reduce.scripts.source import imported, read_script
from dynadiag.scratch import scratch
from dynadiag.torch_compat.reduce_compile import import_dynamo, import_for_kernels
from dynadiag.torch_compat.reduce_stop import compile_with_a_break

_LEAST_PROOF_S = 120.0
_IMPORTED_ONCE = ("numpy", "torchvision", "transformers")
"""Packages that cost seconds to import and start nothing: imported here, so that the children have them."""


def main(job_file: str) -> int:
    """Do the job; gives the exit status."""
    began = time.monotonic()
    job = json.loads(Path(job_file).read_text("utf-8"))
    end_with_starter()
    torch.set_num_threads(1)
    interrupts = Interrupts()
    try:
        with remembering(open_known(job)):
            _reduce(Path(job["script"]), Path(job["out"]), job, interrupts, began)
    except DynadiagError as error:
        say(error=error.message, exit_code=error.exit_code)
        return 1
    except Stopped:
        say(error="interrupted before the failure was confirmed: there is nothing to write", exit_code=130)
        return 130
    return 0


def _reduce(script: Path, out: Path, job: dict[str, Any], interrupts: Interrupts, began: float) -> None:
    if job["kind"] == "cudagraph_skip" and not torch.cuda.is_available():
        raise UsageError("--kind cudagraph_skip: a skipped CUDA graph shows only on a GPU, and torch finds none here")
    joined = join_local_modules(read_script(script, job["arguments"]), script.parent)
    program = joined.program
    own_folders.append(str(out / WARM))
    _import_once(program)
    with template():
        _reduced(program, joined.stay, out, job, interrupts, began)


def _reduced(program: Program, stay: Sequence[str], out: Path, job: dict[str, Any], interrupts: Interrupts, began: float) -> None:
    warm_up()
    keep_for_children()
    say(ready_cpu_s=round(time.process_time(), 2), nodes=program.nodes)
    options = ScriptOptions(
        timeout_s=job["timeout_s"],
        kind=job["kind"],
        match=job["match"],
        said=tuple(job["said"]) if job.get("said") else None,
        journal=out / "journal.jsonl",
        resume=job["resume"],
        on_query=show,
        wait=interrupts.check,
    )
    found = hunt_script(program, options)
    first = to_json(found, write_first(found, out), wall_s=time.monotonic() - began, level_why=job["level_why"])
    write_json(first | {"not_inlined": list(stay), "complete": False}, out / "minify.json")
    interrupts.until_interrupted(out, lambda keep: _concluded(found, stay, out, job, began))


def _concluded(found: ScriptHunt, stay: Sequence[str], out: Path, job: dict[str, Any], began: float) -> None:
    """The proofs and the report."""
    say(doing="running the result in fresh processes")
    written = write_reproducer(found, out, timeout_s=max(_LEAST_PROOF_S, found.confirmed.timeout_s))
    write_report(found, written, out, with_gpu="cuda" in found.best.text)
    result = to_json(found, written, wall_s=time.monotonic() - began, level_why=job["level_why"])
    result["not_inlined"] = list(stay)
    result["server_cpu_s"] = round(time.process_time(), 2)
    write_json(result, out / "minify.json")
    proof = written.proof
    say(done=True, proven=proof.holds, output="" if proof.holds else proof.output[-2000:])


def _import_once(program: Program) -> None:
    """Import what the script imports of torch and of packages that are known to do no more; its own modules are left to the children."""
    import_dynamo(inductor=False)
    names = imported(program)
    for statement in (one for name in ("torch", *_IMPORTED_ONCE) for one in names.get(name, ())):
        with contextlib.suppress(Exception):
            exec(compile(ast.Module([statement], []), "imports", "exec"), {})


def warm_up() -> None:
    """Let children inherit what a first compile, a first break and a first recording import and build (measured: 0.5 s against 0.15 s).

    Where there is a GPU inductor is imported only: to compile could initialise it, and no child could use it then.
    """
    if torch.cuda.is_available():
        import_dynamo(inductor=True)
        import_for_kernels()
        return
    try:
        with scratch("script") as folder:
            with dynadiag.observe(Path(folder) / "run"):
                compile_with_a_break()
            phenomena(Path(folder) / "run")
    except Exception:  # noqa: BLE001 - the border around a candidate: the compiler itself runs here, and the children will say it
        traceback.print_exc()


if __name__ == "__main__":
    try:
        status = main(sys.argv[1])
    except Exception as error:  # noqa: BLE001 - our own error: its traceback goes to the log, one line to the person
        traceback.print_exc()
        say(error=f"the reducer failed: {type(error).__name__}: {error}", exit_code=2)
        status = 2
    sys.exit(status)
