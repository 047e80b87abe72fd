"""Why CUDA graphs were not used, in torch's words.

With CUDA graph trees a write to an input is looked at in the first call, not while compiling, so that torch's compilation metrics do not
have the reason (`check_for_mutation` in torch/_inductor/cudagraph_trees.py, 2.11 to 2.15).
"""

from __future__ import annotations

import logging
from types import ModuleType
from typing import Any

from dynadiag.torch_compat import stacks
from dynadiag.torch_compat.hooks import Hooks

MODULE = "torch._inductor.cudagraph_utils"
_TELLS = "log_cudagraph_skip_and_bump_counter"


def watch_skips(utils: ModuleType, hooks: Hooks) -> None:
    """Record each reason as it is told, once a graph, with the line of the program that made the call."""

    def before(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        reason = str(args[0] if args else kwargs.get("msg"))
        hooks.sink.artifact("dynadiag_problem", {"kind": "cudagraph_skip", "text": reason, "stack": stacks.calling_stack()})

    hooks.install("cudagraph_skip", lambda: hooks.watch(utils, _TELLS, before=before, file=utils.__file__))


class SkipReasons(logging.Filter):
    """Collects the reasons that torch logs, in `texts`, and lets every message through; torch logs them unless TORCH_LOGS forbids."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: set[str] = set()
        logging.getLogger(f"{MODULE}.__cudagraphs").addFilter(self)

    def filter(self, record: logging.LogRecord) -> bool:
        """Keep what is told of a skip."""
        if record.funcName == _TELLS:
            self.texts.add(record.getMessage())
        return True
