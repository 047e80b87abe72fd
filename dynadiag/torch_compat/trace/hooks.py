"""Putting hooks into torch and taking them out again, without Dynamo noticing them.

A hook must be invisible to Dynamo: its frame carries the file name of the torch module that it stands in (Dynamo skips torch's own files),
and the eval-frame callback is off while our own code runs. Otherwise Dynamo compiles our frames when a backward is compiled lazily inside a
compiled step, and its counters change (63 frames became 103 on torch 2.13).
"""

from __future__ import annotations

import functools
import itertools
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, Protocol

from dynadiag.dotted_names import lies_in

Switch = Callable[[Any], Any]
_MISSING = object()


class Sink(Protocol):
    """Where hooks put what they saw."""

    def artifact(self, name: str, content: Any, *, context: bool = True, compile_ids: dict[str, Any] | None = None) -> None:
        """Write one `dynadiag_*` artifact; `compile_ids` replaces the ids of the compilation that is running."""

    def failed(self, hook: str, error: BaseException) -> None:
        """Note that our own code failed, so that the user's program need not know."""


def callback_switch() -> Switch:
    """Torch's C function that sets Dynamo's eval-frame callback and returns the one before (`torch/csrc/dynamo/eval_frame.c`).

    Before torch's C part is loaded, a function that does nothing.
    """
    c_part = getattr(sys.modules.get("torch._C"), "_dynamo", None)
    switch: Switch | None = getattr(getattr(c_part, "eval_frame", None), "set_eval_frame", None)
    return switch if switch is not None else (lambda callback: callback)


def holders(name: str, function: Any) -> list[ModuleType]:
    """Torch's Python modules that hold a function under its name: the one that defines it, and those that have imported it (late attach).

    Never a C module: who calls torch's C function there must get it.
    """
    _held.look()
    return [_held.modules[number] for number, names in enumerate(_held.names) if names.get(name) is function]


class _ModulesOfTorch:
    """Torch's Python modules, and what each holds. There are thousands of modules: only those that came since are looked at.

    A forked child, which begins with what its parent knew, would copy the page of each.
    """

    def __init__(self) -> None:
        self.modules: list[ModuleType] = []
        self.names: list[dict[str, Any]] = []
        self._count, self._last = 0, ""

    def look(self) -> None:
        more = max(len(sys.modules) - self._count, 0)
        newest = list(itertools.islice(reversed(sys.modules), more + 1))
        if newest[-1] != self._last or len(sys.modules) < self._count:  # some have gone
            self.modules, self.names, newest = [], [], list(reversed(sys.modules))
        else:
            del newest[-1]
        self._count, self._last = len(sys.modules), next(reversed(sys.modules))
        for known in reversed(newest):
            module = sys.modules.get(known) if lies_in(known, "torch") else None
            if isinstance(module, ModuleType) and str(vars(module).get("__file__")).endswith(".py"):
                self.modules.append(module)
                self.names.append(vars(module))


_held = _ModulesOfTorch()


def disguise(function: Any, file: str | None) -> Any:
    """The same function, its code named after `file`, so that Dynamo skips it as it skips that file."""
    if file:
        function.__code__ = function.__code__.replace(co_filename=file)
    return function


def without_callback(file: str | None) -> Callable[..., Any]:
    """A function that calls another with Dynamo's callback off; it is disguised as one of `file`, since it may run where that is on.

    It stands between: what looks at frames by their number must not be called by it.
    """
    switch = callback_switch()

    def dynadiag_aside(work: Callable[..., Any], *values: Any) -> Any:
        prior = switch(None)
        try:
            return work(*values)
        finally:
            switch(prior)

    return disguise(dynadiag_aside, file)  # type: ignore[no-any-return]


class Hooks:
    """The hooks of one recorder: which are in, why others are not, and how to take all of them out."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        self.health: dict[str, str] = {}
        self._undo: list[Callable[[], None]] = []
        self._tried: set[str] = set()

    def install(self, name: str, put_in: Callable[[], None]) -> None:
        """Put one hook in, once, and note its health: "ok", or why it could not be put in."""
        if name in self._tried:
            return
        self._tried.add(name)
        try:
            put_in()
        except Exception as error:  # noqa: BLE001 - border: a torch that lacks a name must not stop the user's program
            self.health[name] = f"{type(error).__name__}: {error}"
        else:
            self.health[name] = "ok"

    def replace(self, owner: Any, name: str, new: Any) -> None:
        """Set an attribute and remember how to restore it."""
        old = vars(owner).get(name, _MISSING)

        def restore() -> None:
            if vars(owner).get(name, _MISSING) is not new:
                return
            if old is _MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, old)

        setattr(owner, name, new)
        self._undo.append(restore)

    def on_undo(self, restore: Callable[[], None]) -> None:
        """Run `restore` when the hooks are taken out."""
        self._undo.append(restore)

    def undo(self) -> None:
        """Take every hook out, the newest first."""
        while self._undo:
            try:
                self._undo.pop()()
            except Exception as error:  # noqa: BLE001 - border: our hooks in the user's process
                self.sink.failed("undo", error)
        self._tried.clear()

    def watch(
        self,
        owner: Any,
        name: str,
        *,
        before: Callable[[tuple[Any, ...], dict[str, Any]], None] | None = None,
        after: Callable[[tuple[Any, ...], dict[str, Any], Any], None] | None = None,
        error: Callable[[tuple[Any, ...], dict[str, Any], BaseException], None] | None = None,
        file: str | None = None,
    ) -> None:
        """Call `before`, `after` and `error` around `owner.name`, whose arguments, result and exceptions stay as they are.

        A function of a module is replaced wherever torch has imported it by its name.
        """
        original = getattr(owner, name)
        file = file or sys.modules[original.__module__].__file__
        wrapper = _watched(original, *(item and self.shielded(name, item) for item in (before, after, error)))
        replacement = functools.wraps(original)(disguise(wrapper, file))
        for place in holders(name, original) if isinstance(owner, ModuleType) else [owner]:
            self.replace(place, name, replacement)

    def shielded(self, hook: str, callback: Callable[..., None]) -> Callable[..., None]:
        """The callback, whose own errors are noted and never raised."""

        def shielded(*args: Any) -> None:
            try:
                callback(*args)
            except Exception as error:  # noqa: BLE001 - border: our hooks in the user's process
                self.sink.failed(hook, error)

        return shielded


def _watched(
    original: Callable[..., Any],
    before: Callable[..., None] | None,
    after: Callable[..., None] | None,
    failed: Callable[..., None] | None,
) -> Callable[..., Any]:
    """A function that calls `original` and ours around it; every call of ours runs with Dynamo's callback off."""
    switch = callback_switch()

    def dynadiag_watch(*args: Any, **kwargs: Any) -> Any:
        if before is not None:
            prior = switch(None)
            try:
                before(args, kwargs)
            finally:
                switch(prior)
        try:
            result = original(*args, **kwargs)
        except BaseException as error:
            if failed is not None:
                prior = switch(None)
                try:
                    failed(args, kwargs, error)
                finally:
                    switch(prior)
            raise
        if after is not None:
            prior = switch(None)
            try:
                after(args, kwargs, result)
            finally:
                switch(prior)
        return result

    return dynadiag_watch
