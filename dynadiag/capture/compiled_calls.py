"""What a script gets of `torch.compile`, and each call of it before it is made."""

from __future__ import annotations

import functools
import sys
import threading
import types
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

from dynadiag.torch_compat.dynamo.compiled_calls import is_optimized_module, uncompiled
from dynadiag.torch_compat.trace.hooks import disguise


@dataclass(frozen=True, kw_only=True)
class CompiledCallable:
    """What one call of `torch.compile` gave: its number in the script (from 1), the name of what it compiles, and where that was asked."""

    number: int
    name: str
    place: str
    compiled: Any
    options: Mapping[str, Any]

    @property
    def original(self) -> Any:
        """What was compiled, as the script has it."""
        return uncompiled(self.compiled)

    @property
    def group(self) -> tuple[str, str]:
        """Callables with the same name from the same line are pieces of one kind (a layer in a loop)."""
        return self.name, self.place


APART = "dynadiag_apart"
"""An option for `torch.compile` of ours: what is compiled is part of something that is watched, and not watched itself."""

# What a call gave, or what it raised.
After = Callable[[Any, Optional[BaseException]], None]  # noqa: UP045 - Python 3.9 makes this at run time
# What is called, the number of its call from 1, and the arguments; may give what is told of the end of the call.
Before = Callable[[CompiledCallable, int, tuple[Any, ...], dict[str, Any]], Optional[After]]  # noqa: UP045


class CompiledCalls:
    """Calls `before` ahead of each call of what a script compiles that nothing else compiled makes; all runs uncompiled if `eager`.

    What the script holds stays what torch gave it: an `OptimizedModule` itself (its class is patched until `stop`), or a function that
    carries the attributes of torch's wrapper, so that Dynamo inlines the original when it meets it (`_torchdynamo_inline`, 2.11 to 2.15).
    `known` is what was compiled, `counts` how often each number was called. `change` makes of the options that the script gives those that
    torch gets.
    """

    def __init__(
        self, before: Before, *, eager: bool = True, change: Callable[[Mapping[str, Any]], Mapping[str, Any]] = lambda options: options
    ) -> None:
        self.known: list[CompiledCallable] = []
        self.counts: Counter[int] = Counter()
        self._before = before
        self._eager = eager
        self._change = change
        self._stopped = False
        self._thread = threading.local()
        self._modules: dict[int, CompiledCallable] = {}
        self._unpatch: dict[type, Callable[[], None]] = {}

    def install(self) -> None:
        """Watch `torch.compile` from now on, which must be torch's own."""
        self._compile = replace_compile(self._answer)

    def stop(self) -> None:
        """Let every call through from now on, compile as torch does, and give torch's class back."""
        self._stopped = True
        for unpatch in self._unpatch.values():
            unpatch()

    def compile(self, model: Any, options: Mapping[str, Any]) -> Any:
        """What torch's own `torch.compile` gives, which is not watched."""
        return self._compile(model, **options)

    def watch(self, function: Any) -> Any:
        """A function or a module that is not compiled, watched as what is."""
        import torch

        if isinstance(function, torch.nn.Module):
            self._watch_module(function, self._noted(function, function, {}))
            return function
        watched = self._stand_in(self._noted(function, function, {}))
        watched._torchdynamo_orig_callable = function  # as `uncompiled` finds what is behind it
        return watched

    def _answer(self, model: Any, options: Mapping[str, Any]) -> Any:
        apart = APART in options
        options = {name: value for name, value in options.items() if name != APART}
        compiled = self._compile(model, **self._change(options))
        if apart and isinstance(model, types.MethodType):
            setattr(compiled, APART, True)  # the object had no such attribute: `capture.reach` does not look into it
        if self._stopped or apart or options.get("disable"):
            return compiled
        callee = self._noted(model, compiled, options)
        if is_optimized_module(compiled):
            self._watch_module(compiled, callee)
            return compiled
        # A class, which torch patches in place, is left alone.
        return self._stand_in(callee) if hasattr(compiled, "__code__") else compiled

    def _noted(self, model: Any, compiled: Any, options: Mapping[str, Any]) -> CompiledCallable:
        import torch

        if self._eager and not self.known:
            torch.compiler.set_stance("force_eager")
        place = _place_outside_torch()
        callee = CompiledCallable(number=len(self.known) + 1, name=_name(model), place=place, compiled=compiled, options=dict(options))
        self.known.append(callee)
        return callee

    def _stand_in(self, callee: CompiledCallable) -> Any:
        compiled = callee.compiled

        def dynadiag_watch(*args: Any, **kwargs: Any) -> Any:
            if self._stopped:
                return compiled(*args, **kwargs)
            return self._pass(compiled, callee, args, kwargs)

        return functools.wraps(compiled)(disguise(dynadiag_watch, compiled.__code__.co_filename))

    def _watch_module(self, module: Any, callee: CompiledCallable) -> None:
        self._modules[id(module)] = callee
        if type(module) not in self._unpatch:
            self._patch(type(module))

    def _patch(self, kind: Any) -> None:
        original = kind.__call__

        def dynadiag_watch(module: Any, *args: Any, **kwargs: Any) -> Any:
            callee = self._modules.get(id(module))
            if self._stopped or callee is None:
                return original(module, *args, **kwargs)
            return self._pass(functools.partial(original, module), callee, args, kwargs)

        kind.__call__ = functools.wraps(original)(disguise(dynadiag_watch, original.__code__.co_filename))
        self._unpatch[kind] = lambda: setattr(kind, "__call__", original)

    def _pass(self, call: Callable[..., Any], callee: CompiledCallable, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if getattr(self._thread, "inside", False):
            return call(*args, **kwargs)
        self._thread.inside = True
        try:
            self.counts[callee.number] += 1
            after = self._before(callee, self.counts[callee.number], args, kwargs)
            if after is None:
                return call(*args, **kwargs)
            try:
                result = call(*args, **kwargs)
            except BaseException as error:
                after(None, error)
                raise
            after(result, None)
            return result
        finally:
            self._thread.inside = False


def replace_compile(answer: Callable[[Any, Mapping[str, Any]], Any]) -> Callable[..., Any]:
    """`torch.compile` as it was; in its place `answer(model, options)` says what a program gets, from decorators too.

    `Module.compile` goes through the same name (`torch/nn/modules/module.py`, 2.11 to 2.15).
    """
    import torch

    original = torch.compile

    @functools.wraps(original)
    def compile_(model: Any = None, **options: Any) -> Any:
        return functools.partial(compile_, **options) if model is None else answer(model, options)

    torch.compile = compile_
    return original


def _name(model: Any) -> str:
    """A name for what is compiled: a function's own name, or the class of a module; never its repr."""
    if isinstance(model, types.MethodType):
        owner = type(model.__self__).__name__
        return owner if model.__name__ == "_call_impl" else f"{owner}.{model.__name__}"
    name = getattr(model, "__qualname__", None)
    return name.rpartition("<locals>.")[2] if isinstance(name, str) else type(model).__name__


def _place_outside_torch() -> str:
    """The innermost line outside torch and this package that asked for compilation."""
    import torch

    ours = (str(Path(torch.__file__).parent), str(Path(__file__).parents[1]))
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(ours):
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
