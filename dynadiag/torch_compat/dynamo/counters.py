"""Dynamo's and Inductor's counters as plain numbers, and what both time while a benchmark runs."""

from __future__ import annotations

import functools
import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from dynadiag.torch_compat.inductor.cudagraph_skips import SkipReasons


def snapshot() -> dict[str, dict[str, int]] | None:
    """`torch._dynamo.utils.counters` as nested dicts of int; None when Dynamo was never imported."""
    utils = sys.modules.get("torch._dynamo.utils")
    counters: Any = getattr(utils, "counters", None)
    if counters is None:
        return None
    groups = {str(group): _numbers(values) for group, values in dict(counters).items()}
    return {group: values for group, values in groups.items() if values}


def _numbers(values: Any) -> dict[str, int]:
    return {str(name): count for name, count in dict(values).items() if isinstance(count, int)}


# Groups of `torch._dynamo.utils.counters` that move only when something is compiled (2.11 to 2.15).
_COMPILING = ("stats", "frames", "graph_break", "unimplemented", "aot_autograd")
_MANY = 100_000
_WHOLE = "_compile.compile_inner"
_BACKEND = "OutputGraph.call_user_compiler"
_AOT = "create_aot_dispatcher_function"
_INDUCTOR = "compile_fx_inner"
_skips = SkipReasons()


@dataclass
class _Breaks:
    count: int = 0


_breaks = _Breaks()


def keep_all_metrics() -> None:
    """Let Dynamo keep the metrics of every compilation (it keeps 64, `DEFAULT_COMPILATION_METRICS_LIMIT`), and count its graph breaks.

    Dynamo's own counter leaves out branches on data (2.11 to 2.15). Imports torch._dynamo.
    """
    import torch._dynamo.utils
    from torch._dynamo.symbolic_convert import InstructionTranslatorBase

    torch._dynamo.utils.set_compilation_metrics_limit(_MANY)
    original: Any = InstructionTranslatorBase.log_graph_break
    if getattr(original, "counts", None) is not _breaks:

        @functools.wraps(original)
        def counted(*args: Any, **kwargs: Any) -> Any:
            _breaks.count += 1
            return original(*args, **kwargs)

        counted.counts = _breaks  # type: ignore[attr-defined]
        InstructionTranslatorBase.log_graph_break = counted  # type: ignore[method-assign]


def compile_counters() -> dict[str, dict[str, int]]:
    """The counters that stand still once nothing is compiled any more; empty when Dynamo was never imported."""
    counted = snapshot() or {}
    return {group: counted[group] for group in _COMPILING if group in counted}


def compile_facts() -> dict[str, Any]:
    """What was compiled in this process since the counters were cleared: counts, CUDA-graph skips with reasons, seconds by phase.

    Breaks are counted after `keep_all_metrics`.
    """
    counted = snapshot() or {}
    metrics = _metrics()
    reasons = {str(item.cudagraph_skip_reason) for item in metrics if getattr(item, "cudagraph_skip_reason", None)} | _skips.texts
    return {
        "graphs": counted.get("stats", {}).get("unique_graphs", 0),
        "breaks": _breaks.count,
        "recompiles": sum(getattr(item, "recompile_reason", None) is not None for item in metrics),
        "limit_hits": sum(count for text, count in counted.get("unimplemented", {}).items() if "recompile limit exceeded" in text),
        "cudagraph_skips": counted.get("inductor", {}).get("cudagraph_skips", 0),
        "cudagraph_skip_reasons": sorted(reasons),
        "phases_s": _phases(),
    }


def clear_compile_facts() -> None:
    """Start counting anew."""
    utils = sys.modules.get("torch._dynamo.utils")
    if utils is not None:
        utils.counters.clear()
        utils.compilation_time_metrics.clear()
        utils.clear_compilation_metrics()
    _skips.texts.clear()
    _breaks.count = 0


def _metrics() -> list[Any]:
    utils = sys.modules.get("torch._dynamo.utils")
    return [] if utils is None else list(utils.get_compilation_metrics())


def _phases() -> dict[str, float]:
    """Seconds spent compiling: tracing by Dynamo, AOTAutograd without what it calls, Inductor, and any other backend."""
    utils = sys.modules.get("torch._dynamo.utils")
    timed = {} if utils is None else {name: sum(values) for name, values in dict(utils.compilation_time_metrics).items()}
    whole, backend, aot, inductor = (timed.get(name, 0.0) for name in (_WHOLE, _BACKEND, _AOT, _INDUCTOR))
    return {
        "dynamo": max(0.0, whole - backend),
        "aot": max(0.0, aot - inductor),
        "inductor": inductor,
        "other_backend": max(0.0, backend - max(aot, inductor)),
    }


def eager_random_numbers() -> AbstractContextManager[Any]:
    """Inductor draws random numbers as eager does while this is entered (`torch._inductor.config.fallback_random`)."""
    try:
        import torch._inductor.config as config
    except ImportError:
        return nullcontext()
    entered: AbstractContextManager[Any] = config.patch(fallback_random=True)
    return entered
