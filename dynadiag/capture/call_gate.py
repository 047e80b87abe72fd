"""Standing between a script and what it compiled: each outermost call is seen before it is made."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

from dynadiag.torch_compat.dynamo.compiled import is_optimized_module
from dynadiag.torch_compat.trace.hooks import disguise

Before = Callable[[int, tuple[Any, ...], dict[str, Any]], None]


class CallGate:
    """Calls `before(number, args, kwargs)` ahead of each call of a watched callable that no other watched callable makes.

    What the script holds stays what torch gave it: an `OptimizedModule` itself (its class is patched until `open`), or a function that
    carries the attributes of torch's wrapper, so that Dynamo inlines the original when it meets it (`_torchdynamo_inline`, 2.11 to 2.15).
    """

    def __init__(self, before: Before) -> None:
        self.is_open = False
        self._before = before
        self._thread = threading.local()
        self._modules: dict[int, tuple[Any, int]] = {}
        self._close: list[Callable[[], None]] = []

    def watch(self, compiled: Any, number: int) -> Any:
        """What the script gets in the place of `compiled`; a class, which torch patches in place, is left alone."""
        if is_optimized_module(compiled):
            self._modules[id(compiled)] = (compiled, number)
            if not self._close:
                self._patch(type(compiled))
            return compiled
        return self._watched_function(compiled, number) if hasattr(compiled, "__code__") else compiled

    def open(self) -> None:
        """Let every call through from now on, and give torch's class back."""
        self.is_open = True
        for close in self._close:
            close()

    def _watched_function(self, compiled: Any, number: int) -> Any:
        gate = self

        def dynadiag_watch(*args: Any, **kwargs: Any) -> Any:
            if gate.is_open:
                return compiled(*args, **kwargs)
            return gate._pass(compiled, number, args, kwargs)

        return functools.wraps(compiled)(disguise(dynadiag_watch, compiled.__code__.co_filename))

    def _patch(self, kind: Any) -> None:
        original = kind.__call__
        gate = self

        def dynadiag_watch(module: Any, *args: Any, **kwargs: Any) -> Any:
            known = gate._modules.get(id(module))
            if gate.is_open or known is None:
                return original(module, *args, **kwargs)
            return gate._pass(functools.partial(original, module), known[1], args, kwargs)

        def restore() -> None:
            kind.__call__ = original

        kind.__call__ = functools.wraps(original)(disguise(dynadiag_watch, original.__code__.co_filename))
        self._close.append(restore)

    def _pass(self, call: Callable[..., Any], number: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if getattr(self._thread, "inside", False):
            return call(*args, **kwargs)
        self._thread.inside = True
        try:
            self._before(number, args, kwargs)
            return call(*args, **kwargs)
        finally:
            self._thread.inside = False
