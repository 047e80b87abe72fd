"""Sums up the guards of a frame from torch's printed guard tree (`dynamo_cpp_guards_str`, `torch/_dynamo/guards.py`)."""

from __future__ import annotations

import re
from collections import Counter

from dynadiag.model.run import Guard, GuardSet

_LEAF = re.compile(r"^[| ]*\+- ([A-Z][A-Z0-9_]*): (.*)$", re.MULTILINE)
_SOURCE = re.compile(r"[LG](?:\[[^\[\]]*\]|\.\w+)+(?:\[[^\[\]]*\]|\.\w+)*")
_LATENCY = re.compile(r"Guard latency = (\d+(?:\.\d+)?) us\s*$")
_LONGEST_CODE = 400
_LONGEST_SOURCES = 3


def read_guards(text: str) -> tuple[GuardSet | None, float | None]:
    """The guards of one frame and torch's own measure of one evaluation in microseconds; None for what the text does not hold.

    Only leaves are counted: the `GuardManager` lines between them are the path to a value and check nothing themselves.
    """
    latency = _LATENCY.search(text)
    kinds: Counter[str] = Counter()
    first: dict[str, Guard] = {}
    longest: list[tuple[int, str, str]] = []
    for kind, body in _LEAF.findall(text):
        kinds[kind] += 1
        if kind not in first:
            first[kind] = _guard(kind, body)
        longest.append((len(_source(body)), kind, body))
    longest.sort(key=lambda entry: -entry[0])
    examples = dict.fromkeys([*first.values(), *(_guard(kind, body) for length, kind, body in longest[:_LONGEST_SOURCES] if length)])
    guards = GuardSet(count=len(longest), by_kind=dict(kinds), examples=tuple(examples)) if longest else None
    return guards, float(latency.group(1)) if latency else None


def _source(body: str) -> str:
    match = _SOURCE.search(body)
    return match.group() if match else ""


def _guard(kind: str, body: str) -> Guard:
    """The guard of one leaf: its code, then two spaces and "#" before the user line that asked for it."""
    code, _, origin = body.partition("  # ")
    return Guard(kind, _source(code), code.strip()[:_LONGEST_CODE], origin.strip()[:_LONGEST_CODE] or None)
