"""The capture of graphs in the script's own process: what the parent asks for, in a variable that every child inherits."""

from __future__ import annotations

import atexit
import gc
import json
import os
import struct
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from types import ModuleType

from dynadiag.import_watcher import ImportWatcher

VARIABLE = "DYNADIAG_CAPTURE"
LATER_INPUTS = "inputs-{}.pt"
"""The inputs of a call after the first, beside `inputs.pt`."""
# What a process does, with which graph, at which of its calls: in `state-<pid>`.
STATE = struct.Struct("<qqq")
IDLE, COMPILING, CALLING = 0, 1, 2
NONE, EVERY, ALWAYS = -1, -2, -3


@dataclass(frozen=True)
class CaptureSettings:
    """Where to write, and what to capture: `graph` is the number of a graph in its process, NONE, EVERY graph at its first `calls` calls,
    or ALWAYS: every graph at each of its calls until one fails.

    `call` is the number of the call whose inputs are taken; 0 takes them when the graph is compiled. `region` are the numbers of the
    graphs that Dynamo made of the same code: some of their calls before that one are kept too.
    """

    directory: str
    graph: int = NONE
    call: int = 0
    region: tuple[int, ...] = ()
    calls: int = 1

    def dumps(self) -> str:
        """The value of the environment variable."""
        return json.dumps(asdict(self))


def from_environment(environment: Mapping[str, str] = os.environ) -> CaptureSettings | None:
    """The settings of the parent; None when nobody captures or the value is not ours."""
    try:
        said = json.loads(environment[VARIABLE])
        return CaptureSettings(**{**said, "region": tuple(said.get("region", ()))})
    except (KeyError, ValueError, TypeError, AttributeError):
        return None


def start() -> None:
    """Watch graphs from the moment that Dynamo is imported; nothing when nobody asked for it.

    Garbage is not looked for among what torch's modules hold, by which such a process saves a third of its time. At the end it is freed as
    in a plain run: else nanobind tells of what leaks (torch 2.15 with triton).
    """
    if (wanted := from_environment()) is None:
        return

    def attach(module: ModuleType) -> None:
        from dynadiag.capture.graph_watch import GraphWatch

        GraphWatch(wanted.directory, graph=wanted.graph, call=wanted.call, region=wanted.region, calls=wanted.calls).attach(module)

    def keep(module: ModuleType) -> None:
        gc.freeze()

    atexit.register(gc.unfreeze)
    ImportWatcher({"torch": keep, "torch._dynamo": keep, "torch._dynamo.output_graph": attach}).install()
