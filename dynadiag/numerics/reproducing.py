"""A graph with a fault handed to `minify`, told where to look: the same capture, and the kind of result that is wrong. No torch."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dynadiag.capture.graph_capture import LATER_INPUTS
from dynadiag.errors import DynadiagError
from dynadiag.numerics.result import NumericsResult, ReproducerKeys
from dynadiag.reduce.session import SessionOptions, reduce_captured

FOLDER = "minified"


def reduce_fault(
    result: NumericsResult, directory: Path, timeout_s: float, on_message: Callable[[Mapping[str, Any]], None] = lambda message: None
) -> ReproducerKeys | None:
    """The smallest graph that shows the first fault, proven by `minify` in `directory/minified`; None where no results are wrong.

    A fault whose results are within the tolerance of all verbs is none for `minify`.
    """
    graph = next((graph for graph in result.with_status("fault") if graph["outcome"] == "different"), None)
    if graph is None:
        return None
    backward = graph["operator"] is not None and graph["operator"]["graph"] == "backward"
    kind = "wrong_gradient" if backward else "wrong_result"
    out = directory / FOLDER
    try:
        capture = _of_call(directory / "capture" / graph["graph"], graph.get("call", 1), out)
        reduced = reduce_captured([capture], None, out, SessionOptions(kind=kind, timeout_s=timeout_s), on_message)
    except (DynadiagError, OSError) as error:
        why_not = error.message if isinstance(error, DynadiagError) else f"{error.strerror or error}"
        return {"graph": graph["graph"], "kind": kind, "file": None, "why_not": why_not}
    file = reduced["reproducer"]
    proven = reduced["proven"]
    return {
        "graph": graph["graph"],
        "kind": kind,
        "file": None if file is None else str(out / file),
        "nodes_before": reduced["size_before"]["nodes"],
        "nodes_after": reduced["size_after"]["nodes"],
        "reproduced": proven["reproduced"],
        "runs": proven["runs"],
    }


def _of_call(capture: Path, call: int, out: Path) -> Path:
    """The capture with the inputs of one of its calls, in a folder of its own."""
    made = out / "capture" / capture.name
    shutil.copytree(capture, made, dirs_exist_ok=True)
    if call > 1:
        shutil.copyfile(capture / LATER_INPUTS.format(call), made / "inputs.pt")
    return made
