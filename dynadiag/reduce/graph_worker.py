"""The process that reduces: it has imported torch and forks a child for each question. Started by `dynadiag minify`, once a captured graph.

    python -m dynadiag.reduce.graph_worker JOB.json

Speaks as `worker_process.py` says.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from dynadiag.children.forked import keep_for_children
from dynadiag.children.template import template
from dynadiag.errors import DynadiagError, UsageError
from dynadiag.json_lines import leave
from dynadiag.reduce.core.speculation import default_width
from dynadiag.reduce.graphs.calling import CallsMade, reduce_calls, with_earlier_calls
from dynadiag.reduce.graphs.candidate import Candidate
from dynadiag.reduce.graphs.guilty_part import GuiltyLayer
from dynadiag.reduce.graphs.inputs import TensorInput
from dynadiag.reduce.graphs.loading import load_capture
from dynadiag.reduce.graphs.observing import calls_of
from dynadiag.reduce.graphs.reduction import Reduction, ReductionOptions
from dynadiag.reduce.graphs.setting import Setting
from dynadiag.reduce.reproducer.finishing import ConcludeOptions, Conclusion, FinishOptions, conclude, finish
from dynadiag.reduce.reproducer.graph_outcome import Papers, claims_of, to_json, write_reproducer
from dynadiag.reduce.reproducer.result_files import write_json
from dynadiag.reduce.worker_process import Interrupts, asked_of, kernels_kept, say, serve, show
from dynadiag.torch_compat.dynamo.compiling import LAYERS, import_dynamo, warm_up
from dynadiag.torch_compat.dynamo.replaying import is_backend

LEAST_CELL_S = 60.0
SEEN_TO_HANG_S = 60.0
"""For the first run of a graph that did not end in the script within the whole limit: twice what the written file waits."""
_CHECKS = {"wrong_result": "forward", "nan": "forward", "wrong_gradient": "gradient", "wrong_mutation": "mutation"}


def reduce_job(job: dict[str, Any], interrupts: Interrupts, began: float) -> None:
    """Reduce the first of the captured graphs that fails. Raises what the last one raised where none does."""
    error = DynadiagError("nothing was captured", slug="not-captured", exit_code=1)
    for folder in job["captures"]:
        try:
            return _reduce(Path(folder), Path(job["out"]), job, interrupts, began)
        except DynadiagError as raised:
            error = raised
    raise error


def _reduce(folder: Path, out: Path, job: dict[str, Any], interrupts: Interrupts, began: float) -> None:
    candidate, setting = load_capture(folder)
    setting = _checked(setting, candidate, job)
    if not candidate.accelerated:
        # Then the server may compile once to warm up: with a GPU in sight even a CPU compile would initialise it.
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    import_dynamo(inductor=setting.backend in LAYERS[2:], training=_is_trained(candidate, setting))
    with template():
        _warm_up(setting.backend)
        keep_for_children()
        job["ready_cpu_s"] = round(sum(os.times()[:4]), 2)  # of this process and of the compilers that warmed it up
        say(ready_cpu_s=job["ready_cpu_s"], nodes=candidate.nodes)
        made = CallsMade(later_call=job.get("call"), sequence=with_earlier_calls(folder, candidate), printed=_printed(folder, job))
        with kernels_kept(out):
            _reduced(candidate, setting, made, out, job, interrupts, began)


def _reduced(
    candidate: Candidate, setting: Setting, made: CallsMade, out: Path, job: dict[str, Any], interrupts: Interrupts, began: float
) -> None:
    options = ReductionOptions(**asked_of(job, interrupts, show), width=job.get("jobs") or default_width())
    if job.get("hangs"):
        options = replace(options, timeout_s=min(options.timeout_s, SEEN_TO_HANG_S))
    found = reduce_calls(candidate, setting, options, made)
    _write_first(found, out, job, began, runs=0)

    def rest(keep: Callable[[], None]) -> None:
        say(doing="running the result in a fresh process")
        _write_first(found, out, job, began, runs=1)
        keep()
        _concluded(found, options, out, job, interrupts, began)

    interrupts.until_interrupted(out, rest)


def _concluded(found: Reduction, options: ReductionOptions, out: Path, job: dict[str, Any], interrupts: Interrupts, began: float) -> None:
    """The guilty part, the proofs and the report."""
    say(doing="looking for the guilty part, and running the result in fresh processes")
    last = conclude(found, out, options, _conclude_options(found, job, interrupts))
    say(doing="writing the report")
    papers = finish(last.reduction, last.written, out, _finish_options(last, job, interrupts))
    if "page" in papers.why:
        say(note=f"report.html was not written: {papers.why['page']}")
    wall_s = time.monotonic() - began
    level = "calls" if last.level == "dynamo" and len(calls_of(last.reduction.best, last.reduction.setting)) > 1 else last.level
    result = to_json(last.reduction, last.guilty, last.written, wall_s=wall_s, level=level, level_why=last.level_why, papers=papers)
    cpu = {"ready_cpu_s": job["ready_cpu_s"], "server_cpu_s": round(time.process_time(), 2)}
    write_json({**result, **cpu}, out / "minify.json")
    proof = last.written.proof
    say(done=True, proven=proof.holds, output="" if proof.holds else proof.output[-2000:])


def _write_first(found: Reduction, out: Path, job: dict[str, Any], began: float, *, runs: int) -> None:
    """The file and `minify.json` before anything else is asked; after an interrupt nobody may wait for a proof."""
    guilty = GuiltyLayer(layer=_NOT_YET)
    written = write_reproducer(found, guilty, out, timeout_s=max(LEAST_CELL_S, found.confirmed.timeout_s), runs=runs)
    papers = Papers(why=dict.fromkeys(("pictures", "report"), "not tried yet"))
    result = to_json(found, guilty, written, wall_s=time.monotonic() - began, level="dynamo", level_why="not tried yet", papers=papers)
    write_json({**result, "ready_cpu_s": job["ready_cpu_s"], "complete": False}, out / "minify.json")


_NOT_YET = "not looked for"


def _is_trained(candidate: Candidate, setting: Setting) -> bool:
    """Whether torch's own back end makes a backward in nearly every question."""
    needs = any(isinstance(input_, TensorInput) and input_.requires_grad for input_ in candidate.inputs)
    return needs and setting.grad and setting.backend in LAYERS[1:]


def _printed(folder: Path, job: dict[str, Any]) -> str | None:
    """What the run printed that captured this graph (`find_and_capture`), where the script failed after a call."""
    output = folder.parent / "output.txt"
    return output.read_text("utf-8", errors="replace") if job["backward"] and output.is_file() else None


def _warm_up(backend: Any) -> None:
    """What cannot be warmed up (no C++ compiler) the children will say."""
    try:
        warm_up(backend)
    except Exception:  # noqa: BLE001 - the border around a candidate: the compiler itself runs here
        traceback.print_exc()


def _conclude_options(found: Reduction, job: dict[str, Any], interrupts: Interrupts) -> ConcludeOptions:
    return ConcludeOptions(
        level=job.get("level", "auto"),
        bisect=job.get("bisect", True),
        on_gpu=found.best.accelerated,
        stop=lambda: interrupts.asked,
    )


def _finish_options(last: Conclusion, job: dict[str, Any], interrupts: Interrupts) -> FinishOptions:
    accelerated = last.reduction.best.accelerated
    return FinishOptions(
        ablation_timeout_s=max(LEAST_CELL_S, last.reduction.confirmed.timeout_s) if job.get("ablation") is not False else None,
        steps=last.guilty.steps if job.get("ablation") is None else None,
        with_gpu=accelerated,
        notes=tuple(f"Tested: {claim}." for claim in claims_of(last.guilty)),
        guilty=last.guilty.layer,
        command=job.get("command") or "",
        warm_up=lambda: None if accelerated else _warm_up("inductor"),
        stop=lambda: "interrupted" if interrupts.asked else None,
    )


def _checked(setting: Setting, candidate: Candidate, job: dict[str, Any]) -> Setting:
    """What is compared follows from the failure that is looked for. Raises UsageError for a back end that is not there: "Invalid backend"
    would be reduced, and proven, as if the compiler had failed.
    """
    if isinstance(setting.backend, str) and setting.backend_source is None and not is_backend(setting.backend):
        raise UsageError(f"torch has no back end {setting.backend!r} here: pass one of torch._dynamo.list_backends() as --backend")
    check = _CHECKS.get(job["kind"] or "", "raises")
    backward = check == "gradient" or job["backward"] or setting.backward
    return replace(setting, check=check, backward=backward, memory_limit_mib=job.get("memory_limit_mib"))  # type: ignore[arg-type]


if __name__ == "__main__":
    leave(serve(sys.argv[1], reduce_job))
