"""What a replay of a compiled graph needs of torch: clean counters, caches on disk or none, names of options that this torch has."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dynadiag.torch_compat.dynamo.compiling import config_module
from dynadiag.torch_compat.dynamo.counters import snapshot

_ON_DISK = (("inductor.force_disable_caches", False), ("inductor.fx_graph_cache", True), ("functorch.enable_autograd_cache", True))
_NOTHING_KEPT = (("inductor.force_disable_caches", True),)
_PLAIN = (("inductor.fallback_random", True), ("inductor.compile_threads", 1), ("dynamo.error_on_recompile", False))


def forget() -> None:
    """Forget what was compiled in this process, and what Dynamo counted."""
    import torch._dynamo.utils

    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()


def let_dynamo_trace_again() -> None:
    """Let Dynamo put into a graph what it writes for `x.data` and breaks at when it meets it (`variables/tensor.py`, 2.11 to 2.15)."""
    import torch._dynamo

    torch._dynamo.allow_in_graph(torch._C._autograd._get_data_attr)  # type: ignore[attr-defined, no-untyped-call]


def graph_breaks() -> int:
    """How often Dynamo broke a graph since `forget`."""
    return sum((snapshot() or {}).get("graph_break", {}).values())


def cache_hits() -> int:
    """How often AOTAutograd took a graph from its cache since `forget` (`torch/_functorch/_aot_autograd/autograd_cache.py`)."""
    return (snapshot() or {}).get("aot_autograd", {}).get("autograd_cache_hit", 0)


def replay_configs(recorded: Iterable[tuple[str, Any]], *, on_disk: bool) -> tuple[tuple[str, Any], ...]:
    """The recorded options that this torch has, and those of a replay: random numbers as eager draws them, one thread, caches or none."""
    wanted = {**dict(recorded), **dict(_PLAIN), **dict(_ON_DISK if on_disk else _NOTHING_KEPT)}
    return tuple((name, value) for name, value in wanted.items() if _known(name))


def _known(name: str) -> bool:
    try:
        module, option = config_module(name)
    except (ImportError, AttributeError, KeyError):
        return False
    return hasattr(module, option.split(".")[0])


def is_backend(name: str) -> bool:
    """Whether `torch.compile` finds a back end of this name in a process that imported torch alone."""
    from torch._dynamo.backends.registry import lookup_backend
    from torch._dynamo.exc import InvalidBackend

    try:
        lookup_backend(name)
    except (InvalidBackend, ImportError):
        return False
    return True
