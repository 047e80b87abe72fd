"""The components of a cache key as torch lists them (`FxGraphCachePickler.debug_lines`, torch/_inductor/codecache.py, 2.11 to 2.15)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from dynadiag.errors import UnreadableInputError
from dynadiag.model.location import PayloadRef
from dynadiag.trace.payloads import read_payload
from dynadiag.trace.values import BadRecordError, as_dict, as_texts, parse_json

_MOST = 20_000
_LONGEST_LINE = 8 << 20
# `[hash] name: value`; the hash is that of the value alone, so that equal values of different names have the same one.
_LINE = re.compile(r"\[(\w{1,200})\] ([^\n]{1,400}?): ", re.DOTALL)


class KeyPart(NamedTuple):
    """One component of a key: the hash of its value, and the value as torch prints it."""

    digest: str
    text: str


def read_key_parts(ref: PayloadRef | None) -> Mapping[str, KeyPart]:
    """The components of a key by name, in torch's order; none where the record lists none, is damaged, or is gone."""
    if ref is None:
        return {}
    try:
        listed = as_texts(as_dict(parse_json(read_payload(ref), "not JSON")).get("components"))
    except (BadRecordError, UnreadableInputError):
        return {}
    found: dict[str, KeyPart] = {}
    for line in listed[:_MOST]:
        match = _LINE.match(line[:_LONGEST_LINE])
        if match is not None:
            found.setdefault(match[2], KeyPart(match[1], line[match.end() : _LONGEST_LINE]))
    return found


class KeyDifference(NamedTuple):
    """A component that two keys do not share: its name, and its value in each, None where the key has none of this name."""

    name: str
    old: str | None
    new: str | None


def key_differences(old: Mapping[str, KeyPart], new: Mapping[str, KeyPart]) -> tuple[KeyDifference, ...]:
    """The components that differ, by name, in the order of the new key."""
    names = [name for name in new if name not in old or old[name].digest != new[name].digest]
    names += [name for name in old if name not in new]
    return tuple(KeyDifference(name, old[name].text if name in old else None, new[name].text if name in new else None) for name in names)
