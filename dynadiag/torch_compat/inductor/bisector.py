"""Leaving out single applications of the compiler's parts: its passes, decompositions and lowerings, as torch's own bisector sees them.

torch asks `CompilerBisector.disable_subsystem(backend, subsystem, debug_info)` before each (`torch/_inductor/compiler_bisector.py`, 2.11 to
2.15). Answering that question ourselves needs none of the bisector's files, which children that run at the same time would share.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

SUBSYSTEMS = ("decomposition", "pre_grad_passes", "joint_graph_passes", "post_grad_passes", "lowerings", "cudagraphs")
"""The parts in the order in which a graph passes them (`compiler_bisector.BACKENDS`, 2.15)."""
_TARGET = re.compile(r"target=([\w.]+)")


@dataclass(frozen=True, kw_only=True)
class SuspectedPart:
    """One application of a part: the `number`-th (from 0) question of this subsystem, and what it was about."""

    subsystem: str
    number: int
    name: str


@contextlib.contextmanager
def leaving_out(chosen: Callable[[SuspectedPart], bool], tell: Callable[[SuspectedPart], None]) -> Iterator[None]:
    """Compiles inside leave out the chosen applications; each one is told. Caches of compiled graphs are not used."""
    from torch._inductor.compiler_bisector import CompilerBisector

    counts: Counter[str] = Counter()
    before = vars(CompilerBisector)["disable_subsystem"], CompilerBisector.bisection_enabled

    def disable_subsystem(backend: str, subsystem: str, debug_info: Callable[[], str] | None = None) -> bool:
        if subsystem not in SUBSYSTEMS:
            return False
        part = SuspectedPart(subsystem=subsystem, number=counts[subsystem], name=_name(subsystem, debug_info))
        counts[subsystem] += 1
        tell(part)
        return chosen(part)

    CompilerBisector.disable_subsystem = staticmethod(disable_subsystem)  # type: ignore[method-assign]
    CompilerBisector.bisection_enabled = True
    try:
        yield
    finally:
        CompilerBisector.disable_subsystem, CompilerBisector.bisection_enabled = before  # type: ignore[method-assign]


def _name(subsystem: str, debug_info: Callable[[], str] | None) -> str:
    said = debug_info() if debug_info is not None else subsystem
    found = _TARGET.search(said)
    if found is not None:
        return found[1].removeprefix("torch.ops.")
    operator = re.search(r"'(\w+)\.(\w+)', overload='(\w+)'", said)
    return f"{operator[1]}.{operator[2]}.{operator[3]}" if operator is not None else said[:200]


# What switches a pass or a way of generating code off, the narrowest first; each is one that torch documents for this.
_SWITCHES: tuple[tuple[str, Any], ...] = (
    ("inductor.emulate_precision_casts", True),
    ("inductor.fallback_random", True),
    ("inductor.split_reductions", False),
    ("inductor.cpp.enable_floating_point_contract_flag", "off"),
    ("inductor.cpp.simdlen", 1),
    ("inductor.triton.persistent_reductions", False),
    ("inductor.triton.cudagraphs", False),
    ("inductor.layout_optimization", False),
    ("inductor.comprehensive_padding", False),
    ("inductor.inplace_buffers", False),
    ("inductor.allow_buffer_reuse", False),
    ("inductor.reorder_for_locality", False),
    ("inductor.epilogue_fusion", False),
    ("inductor.max_fusion_size", 1),
    ("inductor.joint_graph_constant_folding", False),
    ("inductor.pattern_matcher", False),
    ("inductor.max_autotune", False),
    ("functorch.cse", False),
    ("functorch.functionalize_rng_ops", False),
)
_ON_CUDA_ONLY = ("inductor.triton.",)
_ON_CPU_ONLY = ("inductor.cpp.",)


def switches(set_now: dict[str, Any], *, on_gpu: bool) -> list[tuple[str, Any]]:
    """The options of this torch that can be changed to leave something out; `set_now` are those that the candidate sets."""
    other = _ON_CPU_ONLY if on_gpu else _ON_CUDA_ONLY
    found = []
    for name, value in _SWITCHES:
        with contextlib.suppress(AttributeError, ImportError):
            if not name.startswith(other) and set_now.get(name, value_now(name)) != value:
                found.append((name, value))
    return found


def value_now(name: str) -> Any:
    """The value of an option in this process. Raises AttributeError or ImportError where this torch has none of that name."""
    from dynadiag.torch_compat.dynamo.compiling import config_module

    module, option = config_module(name)
    return attrgetter(option)(module)


def can_leave_out_by_name() -> bool:
    """Whether this torch has an option that leaves out passes by name (`torch._inductor.config.disabled_passes`)."""
    import torch._inductor.config

    return hasattr(torch._inductor.config, "disabled_passes")
