"""Compiling without torch's measurement of how long the guards take."""

from __future__ import annotations

import sys
from typing import Any


def check_guards_untimed() -> None:
    """From now on what this process compiles has its guards checked once, as before, but not timed: the latency is 0.

    torch flushes the CPU's caches before it times them, which took 24 of the 37 CPU milliseconds of compiling a small function with the
    eager back end (`profile_guard_manager` in `torch/csrc/dynamo/guards.cpp`, 2.11 to 2.15). Does nothing where Dynamo is not imported.
    """
    guards = sys.modules.get("torch._dynamo.guards")
    if guards is not None and hasattr(guards, "profile_guard_manager"):
        guards.profile_guard_manager = _checked  # type: ignore[attr-defined]


def _checked(root: Any, scope: Any, _times: int) -> float:
    root.check(scope)
    return 0.0
