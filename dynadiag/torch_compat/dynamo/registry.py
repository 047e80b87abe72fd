"""What the torch that runs says of its graph-break ids (`torch/_dynamo/graph_break_registry.json`: 421 ids in 2.11, 592 in 2.15)."""

from __future__ import annotations

import functools
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_ID_IN_MESSAGE = re.compile(r"\bgb(\d{4,6})\.html")


def entries_named_in(text: str) -> Iterator[dict[str, Any]]:
    """The entry {gb_id, gb_type, explanation, hints} of each id that a message of torch links to."""
    if ".html" not in text:
        return
    for number in dict.fromkeys(_ID_IN_MESSAGE.findall(text)):
        entry = _registry().get(f"GB{number}")
        if entry:
            yield _row_of(f"GB{number}", entry[0])


@functools.cache
def _registry() -> dict[str, Any]:
    """The registry as torch ships it; its lists hold the newest wording first."""
    package = getattr(sys.modules.get("torch._dynamo"), "__file__", None)
    if package is None:
        return {}
    try:
        registry: dict[str, Any] = json.loads((Path(package).parent / "graph_break_registry.json").read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return registry


def _row_of(gb_id: str, entry: dict[str, Any]) -> dict[str, Any]:
    hints = entry.get("Hints") or []
    return {
        "gb_id": gb_id,
        "gb_type": str(entry.get("Gb_type", "")),
        "explanation": str(entry.get("Explanation", "")),
        "hints": [str(hint) for hint in hints],
    }
