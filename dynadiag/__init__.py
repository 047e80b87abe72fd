"""dynadiag: finds out what `torch.compile` did to a program, why, and what to change. Names load on first use, so the import is cheap."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dynadiag.api import assert_no_graph_breaks, assert_warm_start, explain, load
    from dynadiag.bench import benchmark
    from dynadiag.record import observe
    from dynadiag.reduce import Verdict, minify

__version__ = "0.1.0"
__all__ = [
    "Verdict",
    "__version__",
    "assert_no_graph_breaks",
    "assert_warm_start",
    "benchmark",
    "explain",
    "fix",
    "load",
    "minify",
    "observe",
]

_HOMES = {
    "Verdict": "dynadiag.reduce",
    "assert_no_graph_breaks": "dynadiag.api",
    "assert_warm_start": "dynadiag.api",
    "benchmark": "dynadiag.bench",
    "explain": "dynadiag.api",
    "load": "dynadiag.api",
    "minify": "dynadiag.reduce",
    "observe": "dynadiag.record",
}


def __getattr__(name: str) -> Any:
    """A public name, imported from its home when first asked for (PEP 562)."""
    if name == "fix":  # the package itself can be called
        return importlib.import_module("dynadiag.fix")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'dynadiag' has no attribute {name!r}")
    return getattr(importlib.import_module(home), name)


def load_ipython_extension(shell: Any) -> None:
    """What `%load_ext dynadiag` calls: gives the notebook the cell magic `%%dynadiag`."""
    importlib.import_module("dynadiag.notebook").register(shell)


def __dir__() -> list[str]:
    return sorted(__all__)
