"""Torch's older profiler, for one thread alone: it starts in 0.05 ms, without Kineto and without a device."""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from dynadiag.torch_compat.trace.hooks import disguise

# Where torch turns a profiler on: ours makes room for one that the program starts (2.6 to 2.15).
_STARTS = (
    ("torch.autograd.profiler", "_prepare_profiler"),
    ("torch.autograd.profiler", "_enable_profiler"),
    ("torch.autograd.profiler_legacy", "_enable_profiler_legacy"),
)


def profiler_runs() -> bool:
    """Whether a profiler is on in this thread."""
    return bool(sys.modules["torch"]._C._autograd._profiler_enabled())


def start_profiler(*, with_stack: bool = False) -> None:
    """Begin; `with_stack` notes the Python stack of each operator, which takes longer and much memory."""
    torch_c = sys.modules["torch"]._C
    experimental = torch_c._profiler._ExperimentalConfig()
    config = torch_c._profiler.ProfilerConfig(torch_c._profiler.ProfilerState.CPU, False, False, with_stack, False, False, experimental)
    torch_c._autograd._enable_profiler_legacy(config)


def stop_profiler() -> Any:
    """End; gives for each thread its events in order."""
    return sys.modules["torch"]._C._autograd._disable_profiler_legacy()


def profiler_starts(leave: Callable[[], Any]) -> Iterator[tuple[ModuleType, str, Callable[..., Any]]]:
    """Functions to put in place of those by which the program starts a profiler of its own: they call `leave` before, in this thread."""
    thread = threading.get_ident()
    for name, start in _STARTS:
        module = sys.modules.get(name)
        if module is not None and hasattr(module, start):
            original = getattr(module, start)
            yield module, start, functools.wraps(original)(disguise(_after(leave, original, thread), module.__file__))


def _after(leave: Callable[[], Any], start: Callable[..., Any], thread: int) -> Callable[..., Any]:
    def dynadiag_room(*args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() == thread:
            leave()
        return start(*args, **kwargs)

    return dynadiag_room
