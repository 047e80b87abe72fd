"""What watching a backward needs of torch's autograd engine: which run of it this is, what it will do, Python that Dynamo does not see."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import torch

from dynadiag.torch_compat.trace.hooks import without_callback


def graph_task() -> int:
    """The number of the engine's run that this thread works for; -1 outside of a backward."""
    return int(torch._C._current_graph_task_id())


def will_run(node: Any) -> bool:
    """Whether the running backward is known to use the gradient that goes to `node`.

    For a leaf under `torch.autograd.grad` torch refuses to say (`THPModule_willEngineExecuteNode` in `torch/csrc/Module.cpp`): then False.
    """
    try:
        return bool(torch._C._will_engine_execute_node(node))
    except RuntimeError:
        return False


def at_end_of_backward(function: Callable[[], None]) -> None:
    """Call it when the running backward has ended, in the thread that called backward."""
    torch.autograd.Variable._execution_engine.queue_callback(function)


def unseen(function: Any) -> Any:
    """The same function, invisible to Dynamo: a backward, or the end of a tensor, can come while its callback is live.

    Our frame would then be compiled as one of the program's (seen on 2.11 and 2.15).
    """
    file = getattr(sys.modules.get("torch._dynamo.output_graph"), "__file__", None)
    return functools.update_wrapper(functools.partial(without_callback(file), function), function)


def compiled_autograd_is_on() -> bool:
    """Whether backwards are captured and compiled: hooks would become part of what is compiled."""
    module = sys.modules.get("torch._dynamo.compiled_autograd")
    config = sys.modules.get("torch._dynamo.config")
    return bool(getattr(module, "compiled_autograd_enabled", False) or getattr(config, "compiled_autograd", False))


def casting() -> dict[str, tuple[bool, torch.dtype]]:
    """Whether autocast is on, and to which dtype, by device."""
    return {kind: (torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in ("cpu", "cuda")}


def set_casting(state: dict[str, tuple[bool, torch.dtype]]) -> None:
    """As `casting` gave it."""
    for kind, (enabled, dtype) in state.items():
        torch.set_autocast_enabled(kind, enabled)
        torch.set_autocast_dtype(kind, dtype)
