"""Stop compiling once something was seen: the rest of a candidate runs without the compiler, which is far cheaper than tracing it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

Seen = Callable[[], bool]


def stop_compiling_when(seen: Seen) -> None:
    """From now on ask `seen` after each graph break, recompile and frame; once it says yes, every further frame is left to Python.

    The frame that is being traced is given up (`SkipFrame`), since its break would have it traced a second time up to there. For good: not
    to be undone in this process. Names of torch 2.11 to 2.15 (`_dynamo/symbolic_convert.py`, `_dynamo/convert_frame.py`).
    """
    from torch._dynamo import convert_frame, symbolic_convert
    from torch._dynamo.exc import SkipFrame
    from torch._dynamo.types import ConvertFrameReturn

    stopped = False

    def ask() -> bool:
        nonlocal stopped
        stopped = stopped or seen()
        return stopped

    def ask_after(owner: Any, name: str, *, give_up: bool) -> None:
        original = getattr(owner, name)

        @functools.wraps(original)
        def watched(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            if ask() and give_up:
                raise SkipFrame("dynadiag: all that is needed was seen")
            return result

        setattr(owner, name, watched)

    plain_convert = convert_frame.CatchErrorsWrapper.__call__
    plain_run = symbolic_convert.InstructionTranslator.run

    @functools.wraps(plain_convert)
    def convert(self: Any, *args: Any, **kwargs: Any) -> Any:
        if stopped:
            return ConvertFrameReturn()
        result = plain_convert(self, *args, **kwargs)
        ask()
        return result

    @functools.wraps(plain_run)
    def run_or_stop(self: Any, *args: Any, **kwargs: Any) -> Any:
        if stopped:
            raise SkipFrame("dynadiag: all that is needed was seen")
        return plain_run(self, *args, **kwargs)

    ask_after(symbolic_convert.InstructionTranslatorBase, "log_graph_break", give_up=True)
    ask_after(convert_frame, "get_and_maybe_log_recompilation_reasons", give_up=False)
    convert_frame.CatchErrorsWrapper.__call__ = convert  # type: ignore[method-assign]
    symbolic_convert.InstructionTranslator.run = run_or_stop  # type: ignore[method-assign]


def compile_with_a_break(backend: str = "eager") -> None:
    """Compile a function that breaks, by default with Dynamo alone, and forget it: what that imports and builds stays."""
    import torch._dynamo.utils

    def breaks(x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        torch._dynamo.graph_break()
        return y.cos()

    torch.compile(breaks, backend=backend)(torch.ones(2))
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
