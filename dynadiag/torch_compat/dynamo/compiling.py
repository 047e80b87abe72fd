"""Compiling a candidate as the user compiled it: backend, options and configs; and which phase the compiler is in."""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from dynadiag.torch_compat.dynamo.backend import OptionFunction
from dynadiag.torch_compat.dynamo.user_compiler import watch_compiler

_CONFIGS = {"dynamo": "torch._dynamo.config", "functorch": "torch._functorch.config", "inductor": "torch._inductor.config"}
LAYERS = ("eager", "aot_eager", "aot_eager_decomp_partition", "inductor")
"""Backends that each add one layer to the one before: Dynamo, AOTAutograd, decompositions, inductor (`torch/_dynamo/backends`)."""


def config_module(name: str) -> tuple[Any, str]:
    """The module of an option "inductor.cpp.threads", and the option's name in it. Raises ImportError or AttributeError."""
    area, _, option = name.partition(".")
    module = importlib.import_module(_CONFIGS[area])
    functools.reduce(getattr, option.split("."), module)
    return module, option


def has_option(name: str) -> bool:
    """Whether this torch has the option "inductor.cpp.threads"."""
    try:
        config_module(name)
    except (ImportError, AttributeError, KeyError):
        return False
    return True


def config_path(name: str) -> str:
    """How a script spells the option."""
    area, _, option = name.partition(".")
    return f"{_CONFIGS[area]}.{option}"


@contextlib.contextmanager
def configured(configs: Sequence[tuple[str, Any]]) -> Iterator[None]:
    """The options set inside, as they were outside."""
    with contextlib.ExitStack() as stack:
        for name, value in configs:
            module, option = config_module(name)
            stack.enter_context(module.patch({option: value.function if isinstance(value, OptionFunction) else value}))
        yield


@contextlib.contextmanager
def phases(tell: Callable[[str], None]) -> Iterator[None]:
    """Tell "trace" now, "compile" when a backend begins, "call" when it has ended."""
    from torch._dynamo import output_graph

    def end(begun: None, compiled: Any) -> Any:
        tell("call")
        return compiled

    take_out = watch_compiler(output_graph, lambda *_: tell("compile"), end=end)
    tell("trace")
    try:
        yield
    finally:
        take_out()


def reset() -> None:
    """Forget what was compiled in this process."""
    torch._dynamo.reset()


def loudly() -> contextlib.AbstractContextManager[Any]:
    """Compile errors are raised, whatever `suppress_errors` says."""
    import torch._dynamo.config as config

    manager: contextlib.AbstractContextManager[Any] = config.patch(suppress_errors=False)
    return manager


def header_folder() -> str | None:
    """Where inductor keeps the precompiled headers of all processes of a user; None where it was not imported yet.

    The folder is chosen once, on import (torch/_inductor/codecache.py, `_HEADER_DIR`, 2.11 to 2.15): who forks later keeps it.
    """
    folder = getattr(sys.modules.get("torch._inductor.codecache"), "_HEADER_DIR", None)
    return folder if isinstance(folder, str) else None


def warm_up(backend: Any) -> None:
    """Import what a compile needs, and without a GPU compile once, so that children inherit it (measured: 9 to 13 s against 0.5 s)."""
    import_dynamo(inductor=backend in LAYERS[2:])
    if torch.cuda.is_available():
        if backend in LAYERS[2:]:
            import_for_kernels()
        return
    for layer in dict.fromkeys(("aot_eager", backend if backend in LAYERS[2:] else "aot_eager")):
        torch.compile(torch.sin, backend=layer)(torch.ones(2))
    torch._dynamo.reset()


_FOR_KERNELS = (
    *("triton", "torch._inductor.graph", "torch._inductor.lowering", "torch._inductor.scheduler", "torch._inductor.async_compile"),
    *("torch._inductor.codegen.triton", "torch._inductor.codegen.wrapper", "torch._inductor.codegen.cuda_combined_scheduling"),
    *("torch._inductor.runtime.triton_heuristics", "torch._inductor.fx_passes.joint_graph", "torch._inductor.fx_passes.post_grad"),
)
"""What the first kernel of a process makes inductor import (2.11 to 2.15). None of them initialises CUDA."""


def import_for_kernels() -> None:
    """Import what children that compile for a GPU need, so that each inherits it: the parent cannot compile there itself."""
    for name in _FOR_KERNELS:
        with contextlib.suppress(Exception):  # another torch has other modules: the children import what they need
            importlib.import_module(name)


def import_for_sizes() -> None:
    """Import what sympy does for the first sum of sizes (`sympy/core/add.py`): 17 modules."""
    with contextlib.suppress(ImportError):
        importlib.import_module("sympy.tensor.tensor")


def gpus_to_share(text: str) -> tuple[str, ...]:
    """The GPUs over which children that run the graph of this text can be spread: none when it names another than the first.

    Asks NVML, which does not initialise CUDA (`torch.cuda._raw_device_count_nvml`, 2.11 to 2.15).
    """
    if set(re.findall(r"cuda:(\d+)|index=(\d+)", text)) - {("0", ""), ("", "0")}:
        return ()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        names = tuple(name.strip() for name in visible.split(",") if name.strip())
    else:
        names = tuple(str(number) for number in range(max(0, getattr(torch.cuda, "_raw_device_count_nvml", int)())))
    return names if len(names) > 1 else ()


def cuda_is_lost() -> bool:
    """Whether this process cannot use CUDA, since the one it was forked from had initialised it (`_is_in_bad_fork`, 2.11 to 2.15)."""
    return bool(torch.cuda._is_in_bad_fork())


def import_dynamo(*, inductor: bool, training: bool = False) -> None:
    """Import Dynamo, or also inductor's part that compiles graphs, and nothing more: no device is initialised.

    With `training` what AOTAutograd imports to divide the graph of a forward and a backward (`torch/_functorch/compile_utils.py`, 2.15).
    """
    import torch._dynamo

    if inductor:
        import torch._inductor.compile_fx
    if training:
        import torch._inductor.pattern_matcher  # noqa: F401
