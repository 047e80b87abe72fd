"""A mutation as `report.json` has it: null where something is not known, with the reason beside it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dynadiag.model.report import Mutation

_NULLABLE = ("bytes_touched", "bytes_written_back", "no_grad", "static", "where", "requires_grad", "graph")
_LISTS = ("effects", "sites")
_NOT_RECORDED = "not recorded"


def mutation_entry(item: Mutation, plain: Callable[[Any], Any]) -> dict[str, Any]:
    """The fields of a mutation and, for each that may be unknown, `<field>_why`."""
    entry: dict[str, Any] = plain(item)
    unknown = entry.pop("unknown", {})
    for name in _NULLABLE:
        entry[f"{name}_why"] = unknown.get(name, _NOT_RECORDED) if entry[name] is None else None
    for name in _LISTS:
        entry[f"{name}_why"] = None if entry[name] else unknown.get(name, _NOT_RECORDED)
    return entry
