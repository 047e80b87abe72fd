"""What a script gets of `torch.compile`, and each call of it before it is made."""

from __future__ import annotations

import functools
import sys
import types
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dynadiag.capture.call_gate import CallGate
from dynadiag.torch_compat.dynamo.compiled import uncompiled


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


# What is called, the number of its call from 1, and the arguments.
Before = Callable[[CompiledCallable, int, tuple[Any, ...], dict[str, Any]], None]


class CompiledCalls:
    """Calls `before` ahead of each outermost call of what a script compiles, which runs uncompiled: so nothing is in a cache.

    `known` is what was compiled, `counts` how often each number was called.
    """

    def __init__(self, before: Before) -> None:
        self.known: list[CompiledCallable] = []
        self.counts: Counter[int] = Counter()
        self._before = before
        self._gate = CallGate(self._count)

    def install(self) -> None:
        """Watch `torch.compile` from now on, which must be torch's own."""
        self._compile = replace_compile(self._answer)

    def stop(self) -> None:
        """Let every call through from now on, and compile as torch does."""
        self._gate.open()

    def _answer(self, model: Any, options: Mapping[str, Any]) -> Any:
        import torch

        compiled = self._compile(model, **options)
        if self._gate.is_open or options.get("disable"):
            return compiled
        if not self.known:
            torch.compiler.set_stance("force_eager")
        place = _place_outside_torch()
        known = CompiledCallable(number=len(self.known) + 1, name=_name(model), place=place, compiled=compiled, options=dict(options))
        self.known.append(known)
        return self._gate.watch(compiled, known.number)

    def _count(self, number: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.counts[number] += 1
        self._before(self.known[number - 1], self.counts[number], args, kwargs)


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
