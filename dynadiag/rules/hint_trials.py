"""What came of the switches that torch's own hints name, where dynadiag tried them on programs in which such a break occurs.

`benchmarks/hint_trials.py` writes the file.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_FILE = Path(__file__).with_name("hint_trials.json")
_SWITCH = re.compile(r"torch\._dynamo\.config\.(\w+)")


def with_trials(hint: str) -> str:
    """A hint of torch's, and what came of the switch that it names where that was not always for the better."""
    told = [text for name in dict.fromkeys(_SWITCH.findall(hint)) if (text := _told(name))]
    return " ".join((hint, *told))


def _told(name: str) -> str:
    counts = _trials().get(name, {})
    harm = [f"{counts[key]} {text}" for key, text in _HARM.items() if counts.get(key)]
    if not harm:
        return ""
    better = counts.get("fewer_breaks", 0)
    return f"(Tried on {counts['programs']} programs that ran with this break: {better} then broke less, {' and '.join(harm)}.)"


_HARM = {"raised": "raised an exception", "differs": "gave another result"}


@functools.cache
def _trials() -> Mapping[str, Mapping[str, Any]]:
    found: Mapping[str, Mapping[str, Any]] = json.loads(_FILE.read_text("utf-8"))["options"]
    return found
