"""The start of a capture in the script's own process, before torch is imported."""

from __future__ import annotations

from types import ModuleType

from dynadiag.capture.graph_capture import from_environment
from dynadiag.import_watcher import ImportWatcher


def start() -> None:
    """Watch graphs from the moment that Dynamo is imported; nothing when nobody asked for it."""
    if (wanted := from_environment()) is None:
        return

    def attach(module: ModuleType) -> None:
        from dynadiag.capture.graph_watch import GraphWatch

        GraphWatch(wanted.directory, graph=wanted.graph, call=wanted.call, region=wanted.region).attach(module)

    ImportWatcher({"torch._dynamo.output_graph": attach}).install()
