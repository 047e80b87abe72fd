"""Which rank and which compilation is running now, as torch's own trace records name them."""

from __future__ import annotations

import os
import sys
from typing import Any

_COMPILE_KEYS = ("compiled_autograd_id", "frame_id", "frame_compile_id")


def current_rank() -> int | None:
    """The rank in the default process group, or the one that a launcher announced in `RANK`; None outside distributed runs."""
    distributed = sys.modules.get("torch.distributed")
    try:
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            return int(distributed.get_rank())
    except Exception:  # noqa: BLE001 - border: a half-destroyed process group must not stop the user's program
        return None
    announced = os.environ.get("RANK", "")
    return int(announced) if announced.isdigit() and os.environ.get("WORLD_SIZE", "").isdigit() else None


def compile_ids(compile_id: Any, attempt: int | None = None) -> dict[str, Any]:
    """The keys that `torch._logging._internal.trace_structured` writes for a `torch._guards.CompileId` (2.11 to 2.15)."""
    keys = {key: value for key in _COMPILE_KEYS if (value := getattr(compile_id, key, None)) is not None}
    if attempt is not None:
        keys["attempt"] = attempt
    return keys


def current_compile_ids() -> dict[str, Any]:
    """The keys of the compilation that is running in this thread; empty outside one."""
    guards = sys.modules.get("torch._guards")
    trace_id = guards.CompileContext.current_trace_id() if guards is not None else None
    return {} if trace_id is None else compile_ids(trace_id.compile_id, trace_id.attempt)


def region_name(ids: dict[str, Any]) -> str:
    """The compile id as torch writes it in the event: "0/1", or "!2/0/1" under compiled autograd."""
    own = f"{ids.get('frame_id', '-')}/{ids.get('frame_compile_id', '-')}"
    autograd = ids.get("compiled_autograd_id")
    return own if autograd is None else f"!{autograd}/{own}"
