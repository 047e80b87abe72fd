"""The process that compares captured graphs: it has imported torch and forks a child for each. Started by `dynadiag numerics`.

    python -m dynadiag.numerics.worker JOB.json

Says one line for each graph, `{"graph": name, ...}` with the entry of `numerics.json`, as `dynadiag.reduce.worker_process` says them.
"""

from __future__ import annotations

import os
import runpy
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from dynadiag.capture.graph_capture import LATER_INPUTS
from dynadiag.children.forked import ChildReport, Tell, keep_for_children, run_forked
from dynadiag.errors import DynadiagError, UsageError
from dynadiag.files import read_small
from dynadiag.fx.rebuild import MODULE_STACK
from dynadiag.json_lines import leave, value_of
from dynadiag.numerics.aten_graphs import INPUT_SOURCE
from dynadiag.numerics.examination import examine
from dynadiag.reduce.graphs.candidate import Candidate
from dynadiag.reduce.graphs.loading import load_capture, with_inputs
from dynadiag.reduce.graphs.setting import Setting
from dynadiag.reduce.worker_process import Interrupts, kernels_kept, say, serve
from dynadiag.torch_compat.dynamo.compiling import import_dynamo, warm_up

_MOST_BYTES = 64 << 20
_loaded: dict[str, Any] = {}
"""What the user's file defined: a library of operators ends with the last reference to it."""


def compare_job(job: dict[str, Any], interrupts: Interrupts, began: float) -> None:
    """Say what came of each captured graph of the job."""
    if job["load"] is not None:
        _load(job["load"])
    ready: list[tuple[Path, Candidate, Setting]] = []
    for folder in (Path(name).absolute() for name in job["captures"]):
        try:
            candidate, setting = load_capture(folder)
            _note_origins(candidate, folder)
            ready.append((folder, candidate, setting))
        except DynadiagError as error:
            say(graph=folder.name, **skipped(error.message))
    if not any(candidate.accelerated for _, candidate, _ in ready):
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    import_dynamo(inductor=True, training=True)
    _warm_up()
    keep_for_children()
    say(torch=str(torch.__version__), graphs=len(job["captures"]))
    with kernels_kept(Path(job["out"])):
        for folder, candidate, setting in ready:
            interrupts.check()
            later = [(call, folder / LATER_INPUTS.format(call)) for call in range(2, job["calls"] + 1)]
            say(graph=folder.name, **_compared(candidate, setting, [pair for pair in later if pair[1].exists()], job["timeout_s"]))


def _note_origins(candidate: Candidate, folder: Path) -> None:
    """Note at each node its module, its whole stack and, of an input, its source, as the capture has them."""
    try:
        origins = value_of(read_small(folder / "origins.json", _MOST_BYTES))
    except (OSError, ValueError):
        return
    for node in candidate.module.graph.nodes:
        known = origins.get(node.name) if isinstance(origins, dict) else None
        if isinstance(known, list) and len(known) == 3 and all(isinstance(text, str) for text in known):
            node.meta[MODULE_STACK] = known[0]
            node.meta["stack_trace"] = known[1] or node.meta.get("stack_trace")
            node.meta[INPUT_SOURCE] = known[2]


def _compared(candidate: Candidate, setting: Setting, later: Sequence[tuple[int, Path]], timeout_s: float) -> dict[str, Any]:
    def work(tell: Tell) -> None:
        torch.set_num_threads(1)
        try:
            tell({"entry": examine(candidate, setting, [(call, with_inputs(candidate, file)) for call, file in later])})
        except Exception as error:  # noqa: BLE001 - the border around a candidate: eager and the compiler run here
            traceback.print_exc()
            text = " ".join(str(error).split())[:300]
            tell({"entry": skipped(f"it could not be compared: {type(error).__name__}: {text}")})

    report = run_forked(work, timeout_s=timeout_s)
    entry = next((message["entry"] for message in report.messages if "entry" in message), None)
    return entry if isinstance(entry, dict) else skipped(_end(report, timeout_s))


def _end(report: ChildReport, timeout_s: float) -> str:
    if report.timed_out:
        return f"it was not compared within {timeout_s:.0f} s"
    return f"the process that compared it ended with {report.signal or f'exit status {report.exit_status}'}"


def skipped(why: str) -> dict[str, Any]:
    """The entry of a graph that was not compared."""
    return {"status": "skipped", "why_not": why}


def _load(file: str) -> None:
    try:
        _loaded.update(runpy.run_path(file, run_name="dynadiag_loaded"))
    except Exception as error:  # the border around user code
        raise UsageError(f"--load {file} raises {type(error).__name__}: {str(error)[:300]}") from error


def _warm_up() -> None:
    """What cannot be warmed up (no C++ compiler) the children will say."""
    try:
        warm_up("inductor")
    except Exception:  # noqa: BLE001 - the border around a candidate: the compiler itself runs here
        traceback.print_exc()


if __name__ == "__main__":
    leave(serve(sys.argv[1], compare_job))
