"""One row of the transition table as text."""

from __future__ import annotations

from dynadiag.facts.wording import short_place
from dynadiag.passes.transitions import Row

# `get_and_maybe_log_recompilation_reasons` (torch/_dynamo/guards.py, 2.11 to 2.15) calls it a bug; threads at the compile lock do it too.
_UNEXPECTED = (
    "torch names no guard that failed: all of them pass when it checks again, as happens when another thread compiled the same code "
    "meanwhile; in a single-threaded program this is a bug in torch"
)


def row_text(row: Row) -> str:
    """One line of the transition table: "`x.size(0)`: 4 -> 8 -> 9, dynamic since [0/1]"."""
    if row.kind == "unexpected":
        return _UNEXPECTED
    if row.kind == "unknown":
        return row.guards[0].text or "a guard failed"
    values = ["another value", *row.values] if row.first_unknown else list(row.values)
    shown = values if len(values) <= 6 else [*values[:4], f"({len(values) - 5} more)", values[-1]]
    joined = ", ".join(shown) if row.kind in ("condition", "zero_one", "duck_size") else " -> ".join(shown)
    if row.last_unknown and joined and row.kind not in ("condition", "zero_one", "duck_size"):
        joined += " -> another value"
    dynamic = f", dynamic since [{row.dynamic_since}]" if row.dynamic_since else ""
    if row.kind == "module":
        return "Another compiled module reached the code through which torch enters all of them"
    said = {
        "condition": f"a condition on {row.text}",
        "zero_one": f"the condition that {row.text} is neither 0 nor 1",
        "duck_size": f"sizes that were equal at first: {row.text}",
        "dispatch_keys": f"the dispatch keys of {row.text}",
    }.get(row.kind, row.text)
    return f"{said}{': ' + joined if joined else ' changed'}{dynamic}{_read_at(row)}"


_READ = frozenset({"value", "none", "type", "length", "keys", "contains", "attribute", "identity", "function", "condition"})


def _read_at(row: Row) -> str:
    """The line that the guard is for, as torch recorded it: ", read at model.py:12 (`if self.step > 3:`)"."""
    origin = next((guard.origin for guard in row.guards if guard.origin is not None), None) if row.kind in _READ else None
    if origin is None or not origin.code:
        return ""
    return f", read at {short_place(origin)} (`{origin.code}`)"
