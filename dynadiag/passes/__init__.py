"""Diagnoses: one pass a file, each a pure function from `Run` to `PassResult`.

The passes are imported when `ALL_PASSES` is asked for, not before: `dynadiag.advice` uses small parts of this package that passes need too.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dynadiag.passes.base import Pass

    ALL_PASSES: tuple[Pass, ...]

_NAMES = (
    "find_graph_breaks",
    "find_fallbacks",
    "find_uncaught",
    "find_recompiles",
    "find_guards",
    "find_compile_time",
    "find_cuda_graphs",
    "find_mutations",
    "find_parity",
    "find_parity_replayed",
    "find_rank_differences",
)


def __getattr__(name: str) -> Any:
    """`ALL_PASSES`: every pass, in the order in which their entries appear in a report."""
    if name != "ALL_PASSES":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return tuple(getattr(importlib.import_module(f"{__name__}.{one}"), one) for one in _NAMES)
