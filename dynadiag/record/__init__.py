"""Running a program unchanged and writing down what `torch.compile` did to it. Names load on first use: user processes import this."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dynadiag.record.observing import observe
    from dynadiag.record.supervisor import RecordResult, record
    from dynadiag.record.target import RecordOptions, Target

__all__ = ["RecordOptions", "RecordResult", "Target", "observe", "record"]

_HOMES = {"observe": "observing", "record": "supervisor", "RecordResult": "supervisor", "RecordOptions": "target", "Target": "target"}


def __getattr__(name: str) -> Any:
    """A public name, imported from its home when first asked for (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module 'dynadiag.record' has no attribute {name!r}")
    return getattr(importlib.import_module(f"dynadiag.record.{_HOMES[name]}"), name)
