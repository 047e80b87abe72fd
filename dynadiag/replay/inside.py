"""In the user's process: wait for Dynamo, then watch each graph."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

from dynadiag.record.import_hook import ImportWatcher
from dynadiag.replay.settings import from_environment


class _SecondWatcher(ImportWatcher):
    """Beside the recorder's watcher for the same module: each asks the other for the spec, so one of them must not ask twice."""

    _asking = False

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """The spec of a watched module, once."""
        if self._asking:
            return None
        self._asking = True
        try:
            return super().find_spec(name, path, target)
        finally:
            self._asking = False


def start() -> None:
    """Watch graphs from the moment that Dynamo is imported; nothing when nobody asked for it."""
    wanted = from_environment()
    if wanted is None:
        return

    def attach(module: ModuleType) -> None:
        from dynadiag.torch_compat.reduce_capture import GraphWatch

        GraphWatch(wanted.directory, graph=wanted.graph, call=wanted.call).attach(module)

    _SecondWatcher({"torch._dynamo.output_graph": attach}).install()
