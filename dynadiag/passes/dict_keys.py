"""The keys of dictionaries that versions were compiled for: torch guards each key by its place (`DictGuardManager`, 2.11 and 2.15).

So another order of the same keys fails at the same guard as another set of them; all guards on keys of a version tell the two apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import takewhile

from dynadiag.model.run import Frame
from dynadiag.passes.guard_text import parse_guard_code

KEY_ORDER = "key_order"
_ONE_KEY = re.compile(r"\)\[(\d{1,6})\] == ")
_MOST_SHOWN = 4


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of a dictionary in their order, each as torch writes it; `text` has those that differ between the versions."""

    names: tuple[str, ...]
    text: str


# By compilation and readable source: ("0/1", "keys of d").
KeyLists = Mapping[tuple[str, str], Keys]


def key_lists(frames: Iterable[Frame]) -> KeyLists:
    """The keys that each compilation was made for, where its guards name the first ones of a dictionary without a gap."""
    found: dict[str, dict[str, dict[int, str]]] = {}
    for frame in frames:
        for guard in () if frame.guards is None else (*frame.guards.watched, *frame.guards.examples):
            at = place_of_key(guard.code)
            parsed = None if at is None else parse_guard_code(guard.code)
            if at is not None and parsed is not None and parsed.kind == "keys" and parsed.expected is not None:
                found.setdefault(parsed.source, {}).setdefault(frame.key.text, {})[at] = parsed.expected
    lists: dict[tuple[str, str], Keys] = {}
    for source, versions in found.items():
        whole = {text: tuple(keys[at] for at in sorted(keys)) for text, keys in versions.items() if set(keys) == set(range(len(keys)))}
        different = set(whole.values())
        same = len(list(takewhile(lambda at: len(set(at)) == 1, zip(*different, strict=False)))) if len(different) > 1 else 0
        lists |= {(text, source): Keys(names, _shown(names, same)) for text, names in whole.items()}
    return lists


def _shown(names: tuple[str, ...], same: int) -> str:
    """The keys from the first that is not in the same place in all versions: "..., 'c', 'd', 'e', 'f', ..."."""
    begins = same if len(names) > _MOST_SHOWN else 0
    shown = [*(["..."] if begins else []), *names[begins : begins + _MOST_SHOWN]]
    return ", ".join([*shown, "..."] if begins + _MOST_SHOWN < len(names) else shown)


def place_of_key(code: str) -> int | None:
    """1 for `list(dict.keys(d))[1] == 'b'`; None where a guard is not on one key."""
    match = _ONE_KEY.search(code)
    return int(match[1]) if match is not None and code.startswith("list(") else None


def key_sides(old: Keys | None, new: Keys | None, failed: str, expected: str | None) -> tuple[str | None, str | None]:
    """What a version and a call had: all keys where those of the version are known, else those at the place of the guard that failed."""
    if old is not None:
        return old.text, None if new is None else new.text
    at = place_of_key(failed)
    return expected, new.names[at] if new is not None and at is not None and at < len(new.names) else None


def only_order_differs(pairs: Iterable[tuple[Keys | None, Keys | None]]) -> bool:
    """Whether all these versions and calls have the same keys in another order; False where the guards do not tell."""
    known = list(pairs)
    return bool(known) and all(old is not None and new is not None and sorted(old.names) == sorted(new.names) for old, new in known)
