"""The Python objects that compiled code changes, by the lines that do: a guard on one may fail unseen behind the one that torch names."""

from __future__ import annotations

import re
from collections.abc import Mapping

from dynadiag.errors import UnreadableInputError
from dynadiag.facts.guard_sources import stripped
from dynadiag.facts.user_frames import of_last_run, own_frame
from dynadiag.model.graph import MutationRecord
from dynadiag.model.run import Run
from dynadiag.trace import side_effects

Changes = frozenset[tuple[str, str]]


@of_last_run
def changed_objects(run: Run) -> Mapping[str, Changes]:
    """By frame torch's source of each object that it changes, with the line."""
    found: dict[str, set[tuple[str, str]]] = {}
    for record in run.mutation_records:
        if record.kind == "side_effects":
            found.setdefault(record.frame, set()).update(_changes(record, run))
    return {frame: frozenset(lines) for frame, lines in found.items()}


def _changes(record: MutationRecord, run: Run) -> Changes:
    """An attribute of a module is set by a line of torch's, which the user's own led to."""
    try:
        effects = side_effects(record.payload)
    except UnreadableInputError:
        return frozenset()
    changes = (
        (effect.source, own_frame(stack, run) or stack[-1]) for effect in effects if effect.source is not None for stack in effect.stacks
    )
    return frozenset((stripped(source), place.code or "") for source, place in changes)


def replaces(name: str, line: str) -> bool:
    """Whether the line puts another object in the place of what has this name: `self.s = x`; `self.s[i] = x` and `self.s += x` write it."""
    return re.search(rf"(?<!\w){re.escape(name)} *(?::[^=]+|,[^=]*)?=(?!=)|\bsetattr\(", line) is not None


def counts(line: str) -> bool:
    """Whether what the line stores depends on what was there, or what it adds to grows: `n += 1`, `self.n = self.n + 1`, `xs.append(x)`.

    Not so `self.last = x`, which a later call does not find in its way.
    """
    stored = re.match(r"\s*([\w.]+) *(?::[^=]+)?=(?!=)(.*)", line)
    return stored is None or re.search(rf"(?<![\w.]){re.escape(stored[1])}(?![\w.])", stored[2]) is not None


def changed_beside(raw_source: str, changes: Changes, tensors: frozenset[str] = frozenset()) -> tuple[str, ...]:
    """The lines by which a later call finds something else than this source changed: another list that grows, another count.

    `tensors` are the names of the attributes that hold one: no guard looks at its value.
    """
    source = stripped(raw_source.removeprefix("len(").removesuffix(")"))
    owner, _, name = source.rpartition(".")
    own = re.compile(rf"\.{re.escape(name)}\b") if owner else None
    others = (change for change in changes if change[0] != source and "___stack" not in change[0] and not change[0].endswith("._buffers"))
    lines = [line for at, line in others if counts(line) and not (at == owner and own is not None and own.search(line))]
    return tuple(line for line in lines if (stored := _STORES.match(line)) is None or stored[1] not in tensors)


_STORES = re.compile(r"\s*\w+(?:\.\w+)*\.(\w+) *(?::[^=]+)?[-+*/]?=(?!=)")
_ADDS_ONE = re.compile(r"\s*\w+(?:\.\w+)+ *\+= *\d+\s*$")


def counts_attribute(line: str) -> bool:
    """Whether the line only adds a whole number to an attribute."""
    return _ADDS_ONE.match(line) is not None
