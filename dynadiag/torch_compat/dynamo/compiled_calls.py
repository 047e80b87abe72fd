"""What is compiled: told apart, forgotten, and its calls counted, so that a compilation can be traced to the call that caused it."""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable
from types import ModuleType
from typing import Any

from dynadiag.torch_compat.trace import stacks
from dynadiag.torch_compat.trace.compiled_work import WorkMeter
from dynadiag.torch_compat.trace.cost import CostMeter
from dynadiag.torch_compat.trace.hooks import Hooks, disguise

_NAME = "_callback_from_stance"
_REFUSES = "fail_callback"
_LONGEST = 4000


def watch_refusals(refuse: Any, hooks: Hooks) -> Any:
    """The callback of the stance `fail_on_recompile` (`_callback_from_stance`, 2.11 to 2.15), which raises where something would be
    compiled: each such refusal is recorded. torch calls it with Dynamo's callback off.
    """

    def refused(frame: Any, error: BaseException) -> None:
        place = stacks.place(frame.f_code.co_filename, frame.f_code.co_firstlineno, stacks.qualified_name(frame.f_code))
        problem = {"kind": "recompile_refused", "text": str(error)[:_LONGEST], "stack": [*stacks.calling_stack(), place]}
        hooks.sink.artifact("dynadiag_problem", problem, compile_ids={})

    record = hooks.shielded("recompile_refused", refused)

    def dynadiag_refusal(frame: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return refuse(frame, *args, **kwargs)
        except RuntimeError as error:
            record(frame, error)
            raise

    return functools.wraps(refuse)(dynadiag_refusal)


class CallCounter:
    """How many calls of compiled functions and modules of this process have begun; None until they are counted.

    `work` and `cost` look at some.
    """

    def __init__(self, work: WorkMeter, cost: CostMeter | None = None) -> None:
        self.begun: int | None = None
        self._work = work
        self._cost = cost

    def watch(self, eval_frame: ModuleType, hooks: Hooks) -> None:
        """Count from now on; `eval_frame` is `torch._dynamo.eval_frame`.

        Each such call asks once which callback the stance asks for, with Dynamo's callback off (`compile_wrapper` and `__enter__` in
        `torch/_dynamo/eval_frame.py`, 2.6 to 2.15); so does a call of what `torch.compiler.disable` gave, with None.
        """
        hooks.install("compiled_calls", lambda: self._count(eval_frame, hooks))

    def _count(self, eval_frame: ModuleType, hooks: Hooks) -> None:
        original = getattr(eval_frame, _NAME)
        self.begun = 0
        work, finished, cost = self._work, self._work.finished, self._cost

        def dynadiag_stance(callback: Any) -> Any:
            if callback is not None and callback is not False:
                self.begun = (self.begun or 0) + 1
                if callback not in finished:
                    work.begins(callback, sys._getframe(1))
                if cost is not None and not cost.done:
                    cost.begins(callback, sys._getframe(1))
            elif work.call is not None:
                work.aside(sys._getframe(1))
            chosen = original(callback)
            return watch_refusals(chosen, hooks) if chosen is not callback and getattr(chosen, "__name__", "") == _REFUSES else chosen

        hooks.replace(eval_frame, _NAME, functools.wraps(original)(disguise(dynadiag_stance, eval_frame.__file__)))


def ensure_compiled(fn: Callable[..., Any]) -> Callable[..., Any]:
    """`fn` itself when `torch.compile` has already wrapped it, else `torch.compile(fn)`. Imports torch."""
    import torch

    if is_compiled(fn):
        return fn
    compiled: Callable[..., Any] = torch.compile(fn)
    return compiled


def forget_compiled() -> None:
    """Empty Dynamo's caches, so that the next call compiles everything again, as `torch._dynamo.explain` does. Imports torch."""
    import torch

    torch.compiler.reset()


def is_compiled(fn: Any) -> bool:
    """Whether a call of `fn` goes through Dynamo: a wrapper or an `OptimizedModule` (both keep the original), or `Module.compile()`.

    `torch.compiler.disable` marks its wrappers in the same way and says so (`torch/_dynamo/eval_frame.py`, 2.11 to 2.15).
    """
    if getattr(fn, "_torchdynamo_disable", False):
        return False
    return getattr(fn, "_torchdynamo_orig_callable", None) is not None or getattr(fn, "_compiled_call_impl", None) is not None


def uncompiled(value: Any) -> Any:
    """What was compiled, from its wrapper (`torch/_dynamo/eval_frame.py`, 2.11 to 2.15); anything else as it is."""
    if isinstance(value, types.FunctionType):
        return getattr(value, "_torchdynamo_orig_callable", None) or value
    return value.__dict__["_modules"].get("_orig_mod", value) if is_optimized_module(value) else value


def is_optimized_module(value: Any) -> bool:
    """Whether it is what `torch.compile` gives for a module."""
    return type(value).__name__ == "OptimizedModule"
