"""The components of a cache key as torch lists them (`FxGraphCachePickler.debug_lines`, torch/_inductor/codecache.py, 2.11 to 2.15)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from dynadiag.errors import UnreadableInputError
from dynadiag.model.location import PayloadRef
from dynadiag.trace.payloads import read_payload
from dynadiag.trace.values import BadRecordError, as_dict, as_texts, parse_json

_MOST = 20_000
_LONGEST_LINE = 8 << 20
# `[hash] name: value`
_LINE = re.compile(r"\[(\w{1,200})\] ([^\n]{1,400}?): ", re.DOTALL)


def read_key_lines(ref: PayloadRef | None) -> tuple[str, ...]:
    """The components of a key, in torch's order, a text each; none where the record lists none, is damaged, or is gone."""
    if ref is None:
        return ()
    try:
        return as_texts(as_dict(parse_json(read_payload(ref), "not JSON")).get("components"))[:_MOST]
    except (BadRecordError, UnreadableInputError):
        return ()


class KeyDifference(NamedTuple):
    """A component that two keys do not share: its name, and its value in each, None where the key has none of this name."""

    name: str
    old: str | None
    new: str | None


def key_differences(old: Sequence[str], new: Sequence[str]) -> tuple[KeyDifference, ...]:
    """The components that differ, by name, in the order of the new key. A key has 700 of them, most of which are equal texts."""
    same = frozenset(old) & frozenset(new)
    was, now = (_parts(line for line in lines if line not in same) for lines in (old, new))
    names = [name for name in now if name not in was or was[name][0] != now[name][0]]
    names += [name for name in was if name not in now]
    return tuple(KeyDifference(name, was[name][1] if name in was else None, now[name][1] if name in now else None) for name in names)


def _parts(lines: Iterable[str]) -> dict[str, tuple[str, str]]:
    """By name the hash of the value alone, which equal values of different names share, and the value."""
    found: dict[str, tuple[str, str]] = {}
    for line in lines:
        match = _LINE.match(line[:_LONGEST_LINE])
        if match is not None:
            found.setdefault(match[2], (match[1], line[match.end() : _LONGEST_LINE]))
    return found
