"""The process that reduces a script: it has imported torch and forks a child for each question. Started by `dynadiag minify`.

    python -m dynadiag.reduce.script_worker JOB.json

Speaks as `worker_process.py` says.
"""

from __future__ import annotations

import ast
import contextlib
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

import dynadiag
from dynadiag.children.forked import keep_for_children
from dynadiag.children.template import template
from dynadiag.errors import UsageError
from dynadiag.json_lines import leave
from dynadiag.reduce.core.reduction import Options
from dynadiag.reduce.reproducer.result_files import WARM, write_json
from dynadiag.reduce.reproducer.script_outcome import to_json, write_first, write_report, write_reproducer
from dynadiag.reduce.scripts.inlining import join_local_modules
from dynadiag.reduce.scripts.program import Program, imported, read_script
from dynadiag.reduce.scripts.recorded_failures import failures_in
from dynadiag.reduce.scripts.reduction import ScriptReduction, reduce_script_program
from dynadiag.reduce.scripts.running import own_folders
from dynadiag.reduce.worker_process import Interrupts, asked_of, say, serve, show
from dynadiag.scratch import scratch
from dynadiag.torch_compat.dynamo.compiling import import_dynamo, import_for_kernels, import_for_sizes
from dynadiag.torch_compat.dynamo.stopping import compile_with_a_break

_LEAST_PROOF_S = 120.0
_IMPORTED_ONCE = ("numpy", "torchvision", "transformers")
"""Packages that cost seconds to import and start nothing: imported here, so that the children have them."""


def reduce_job(job: dict[str, Any], interrupts: Interrupts, began: float) -> None:
    """Reduce the script of the job."""
    script, out = Path(job["script"]), Path(job["out"])
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
    options = Options(**asked_of(job, interrupts, show))
    found = reduce_script_program(program, options)
    first = to_json(found, write_first(found, out), wall_s=time.monotonic() - began, level_why=job["level_why"])
    write_json({**first, "not_inlined": list(stay), "complete": False}, out / "minify.json")
    interrupts.until_interrupted(out, lambda keep: _concluded(found, stay, out, job, began))


def _concluded(found: ScriptReduction, stay: Sequence[str], out: Path, job: dict[str, Any], began: float) -> None:
    """The proofs and the report."""
    say(doing="running the result in fresh processes")
    written = write_reproducer(found, out, timeout_s=max(_LEAST_PROOF_S, found.confirmed.timeout_s))
    if why := write_report(found, written, out, command=job.get("command") or "", with_gpu="cuda" in found.best.text):
        say(note=f"report.html was not written: {why['page']}")
    result = to_json(found, written, wall_s=time.monotonic() - began, level_why=job["level_why"])
    cpu_s = round(time.process_time(), 2)
    write_json({**result, "not_inlined": list(stay), "server_cpu_s": cpu_s}, out / "minify.json")
    proof = written.proof
    say(done=True, proven=proof.holds, output="" if proof.holds else proof.output[-2000:])


def _import_once(program: Program) -> None:
    """Import what the script imports of torch and of packages that are known to do no more; its own modules are left to the children."""
    import_dynamo(inductor=False)
    import_for_sizes()
    names = imported(program)
    for statement in (child for name in ("torch", *_IMPORTED_ONCE) for child in names.get(name, ())):
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
            failures_in(Path(folder) / "run")
    except Exception:  # noqa: BLE001 - the border around a candidate: the compiler itself runs here, and the children will say it
        traceback.print_exc()


if __name__ == "__main__":
    leave(serve(sys.argv[1], reduce_job))
