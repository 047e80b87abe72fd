"""The start of a capture in the script's own process, before torch is imported."""

from __future__ import annotations

import atexit
import gc
from types import ModuleType

from dynadiag.capture.graph_capture import from_environment
from dynadiag.import_watcher import ImportWatcher


def start() -> None:
    """Watch graphs from the moment that Dynamo is imported; nothing when nobody asked for it.

    Garbage is not looked for among what torch's modules hold, by which such a process saves a third of its time. At the end it is freed as
    in a plain run: else nanobind tells of what leaks (torch 2.15 with triton).
    """
    if (wanted := from_environment()) is None:
        return

    def attach(module: ModuleType) -> None:
        from dynadiag.capture.graph_watch import GraphWatch

        GraphWatch(wanted.directory, graph=wanted.graph, call=wanted.call, region=wanted.region).attach(module)

    def keep(module: ModuleType) -> None:
        gc.freeze()

    atexit.register(gc.unfreeze)
    ImportWatcher({"torch": keep, "torch._dynamo": keep, "torch._dynamo.output_graph": attach}).install()
