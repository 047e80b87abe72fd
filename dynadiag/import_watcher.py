"""Calling us back the moment a module has been imported, without changing the module, its loader or what else is imported."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


class ImportWatcher:
    """A finder for `sys.meta_path` that calls `callbacks[name](module)` after the module `name` was executed, once each an install."""

    def __init__(self, callbacks: dict[str, Callable[[ModuleType], None]]) -> None:
        self._callbacks = dict(callbacks)
        self._waiting: dict[str, Callable[[ModuleType], None]] = {}
        self._asking: set[tuple[int, str]] = set()

    def install(self) -> None:
        """Call back at once for modules that are loaded, and watch for the others; after `remove` it begins again."""
        self._waiting = dict(self._callbacks)
        for name in [name for name in self._waiting if _is_loaded(name)]:
            self._fire(sys.modules[name])
        if self._waiting and self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def remove(self) -> None:
        """Stop watching."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """The spec that the other finders give, its loader calling us back once; None for every module that we do not watch."""
        callback = self._waiting.get(name)
        if callback is None:
            return None
        spec = self._spec_of_others(name, path, target)
        if spec is not None and hasattr(spec.loader, "exec_module"):
            _call_after_execution(spec.loader, name, self._fire)
        return spec

    def _fire(self, module: ModuleType) -> None:
        """Call back for a module that has run; a spec that was only looked up never comes here."""
        callback = self._waiting.pop(module.__name__, None)
        if not self._waiting:
            self.remove()
        if callback is not None:
            callback(module)

    def _spec_of_others(self, name: str, path: Sequence[str] | None, target: ModuleType | None) -> ModuleSpec | None:
        """The first spec of another finder; a second watcher among them asks us back, which this thread then does not answer."""
        question = (threading.get_ident(), name)
        if question in self._asking:
            return None
        self._asking.add(question)
        try:
            return self._first_spec(name, path, target)
        finally:
            self._asking.discard(question)

    def _first_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None) -> ModuleSpec | None:
        for finder in list(sys.meta_path):
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                return spec
        return None


def _is_loaded(name: str) -> bool:
    module = sys.modules.get(name)
    return module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False)


def _call_after_execution(loader: Any, name: str, callback: Callable[[ModuleType], None]) -> None:
    """Shadow `exec_module` on this one loader until the module `name` has run; the loader is then as it was."""
    execute = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        if module.__name__ == name:
            vars(loader).pop("exec_module", None)
        execute(module)
        if module.__name__ == name:
            callback(module)

    loader.exec_module = exec_module
