"""The process that replays a recording's graphs: `PYTHON offline_main.py JOB.json`, in an interpreter that has torch.

Loaded by file location: dynadiag need not be installed in that interpreter. Prints one JSON line a graph.
The job: {"run": path, "graphs": ids or null, "budget_s": s, "timeout_s": s a scenario, "tests": folder or null,
"load": file of the user that is run first, or null}.
"""

import sys

# The folder of this file holds modules named like the user's own: it must not be searched.
if sys.path and sys.path[0].rstrip("/").endswith("dynadiag/parity"):
    del sys.path[0]

import importlib.metadata
import importlib.util
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dynadiag.model.graph import Graph
    from dynadiag.model.run import Run

# What the user's file defined: a library of operators ends with the last reference to it.
_loaded: dict[str, Any] = {}
PACKAGE = Path(__file__).resolve().parents[1]


def main(job_file: str) -> int:
    """Do the job; 0 when every graph has its line, 2 when the recording cannot be read, 3 without a torch that can replay."""
    job = json.loads(Path(job_file).read_text("utf-8"))
    _load_package()
    from dynadiag.json_lines import Speaker

    speaker = Speaker(default=str)
    speaker.take_stdout()

    def stop(text: str, status: int) -> int:
        speaker.say({"error": text})
        return status

    if importlib.util.find_spec("torch") is None:
        return stop("this interpreter has no torch", 3)
    from dynadiag import trace
    from dynadiag.errors import DynadiagError

    try:
        run = trace.load(Path(job["run"]))
    except DynadiagError as error:
        return stop(error.message, 2)
    from dynadiag.torch_compat.versions import too_old

    if (why := too_old("parity", importlib.metadata.version("torch"))) is not None:
        return stop(why, 3)
    for entry in _entries(run, job):
        speaker.say(entry)
    return 0


def _load_package() -> None:
    if "dynadiag" in sys.modules:
        return
    spec = importlib.util.spec_from_file_location("dynadiag", PACKAGE / "__init__.py", submodule_search_locations=[str(PACKAGE)])
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["dynadiag"] = module
    spec.loader.exec_module(module)


def _entries(run: "Run", job: dict[str, Any]) -> Iterator[dict[str, Any]]:
    import torch

    torch.set_num_threads(1)
    if job["load"] is not None and (error := _load(job["load"])) is not None:
        yield {"error": error}
        return
    graphs = [item for item in run.graphs if item.kind == "dynamo" and (job["graphs"] is None or item.id in job["graphs"])]
    yield {"graphs": len(graphs), "torch": str(torch.__version__)}
    until = time.monotonic() + job["budget_s"]
    texts: dict[tuple[Any, ...], str] = {}
    warmed: set[str] = set()
    for graph in graphs:
        yield {"graph": graph.id, **_where(graph, run), **_entry(graph, run, job, until, texts, warmed)}


def _load(file: str) -> str | None:
    """Run the user's file that registers operators; why not, when it raises."""
    import runpy

    try:
        _loaded.update(runpy.run_path(file, run_name="dynadiag_loaded"))
    except Exception as error:  # noqa: BLE001 - the border around user code
        return f"--load {file} raises {type(error).__name__}: {str(error)[:300]}"
    return None


def _where(graph: "Graph", run: "Run") -> dict[str, Any]:
    frame = run.frame(graph.frame)
    return {
        "frame": frame.id if frame else None,
        "function": frame.name if frame else None,
        "file": frame.file if frame else None,
        "first_line": frame.line if frame else None,
    }


def _entry(
    graph: "Graph", run: "Run", job: dict[str, Any], until: float, texts: dict[tuple[Any, ...], str], warmed: set[str]
) -> dict[str, Any]:
    from dynadiag.errors import DynadiagError, shorten
    from dynadiag.parity.subject import make_ready

    if time.monotonic() > until:
        return _skipped("the time limit was reached before this graph")
    try:
        ready = make_ready(graph, run, loaded=job["load"] is not None)
        key = (ready.subject.rebuilt.graph_module.code, ready.subject.rebuilt.inputs, ready.setting.backend)
        if key in texts:
            return _skipped(f"the same graph as {texts[key]}", same_as=texts[key])
        texts[key] = graph.id
        return _compared(graph, ready, job, until, warmed)
    except DynadiagError as error:
        return _skipped(error.message)
    except Exception as error:  # noqa: BLE001 - the border around one graph: the next one is still replayed
        return _skipped(f"the replay failed: {type(error).__name__}: {shorten(str(error), 200)}")


def _skipped(why: str, **more: str) -> dict[str, Any]:
    return {"status": "skipped", "why_not": why, "notes": [], "tried": [], "skipped": [], "differences": [], **more}


def _compared(graph: "Graph", ready: Any, job: dict[str, Any], until: float, warmed: set[str]) -> dict[str, Any]:
    from dataclasses import asdict

    from dynadiag.parity.offline_graph import try_graph
    from dynadiag.torch_compat.dynamo.compiling import LAYERS, warm_up

    backend = ready.setting.backend
    if backend not in warmed:
        warmed.add(backend)
        warm_up(backend if backend in LAYERS else "aot_eager")
    found = try_graph(ready, until=until, timeout_s=job["timeout_s"])
    skipped = [asdict(item) for item in ready.plan.skipped]
    judged = any(element["outcome"] != "not_judged" for element in found["tried"])
    status = {"status": "compared" if judged else "skipped", "why_not": None if judged else found["tried"][0]["why_not"]}
    if found["differences"] and job["tests"] is not None:
        from dynadiag.parity.emitting import emit_tests

        found["tests"] = emit_tests(graph.id, ready, found, Path(job["tests"]))
    return {**status, "backend": backend, "notes": list(ready.notes), "skipped": skipped, **found}


if __name__ == "__main__":
    # A CPU replay must not wake a GPU up, in this process or in one that it forks.
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    status = main(sys.argv[1])
    if "torch" in sys.modules:  # else there may be no dynadiag either
        from dynadiag.json_lines import leave

        leave(status)
    sys.exit(status)
