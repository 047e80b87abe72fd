"""Reads the artifact `dynamo_side_effects`: the Python objects that a compiled frame changes, each with the stacks of the changes.

Written by `SideEffects._format_side_effect_message` (torch/_dynamo/side_effects.py, 2.11 and 2.15); older torch has no such record.
"""

from __future__ import annotations

import re

from dynadiag.model.mutations import SideEffect
from dynadiag.trace.stacks import printed_stack_of

_HEAD = re.compile(r"^Mutating object of type (.{1,400}?) \((source name|source|no source|unable)(?:: (.{1,2000}))?\)")
_BETWEEN_STACKS = re.compile(r"^ *\*{8} *$", re.MULTILINE)
_MOST = 2_000


def read_side_effects(text: str) -> tuple[SideEffect, ...]:
    """Each object that was changed; what is not of this form is left out."""
    found: list[SideEffect] = []
    lines: list[str] = []
    for line in [*text.split("\n"), "Mutating "]:
        if line.startswith("Mutating ") and lines:
            effect = _side_effect(lines)
            if effect is not None and len(found) < _MOST:
                found.append(effect)
            lines = []
        if lines or line.startswith("Mutating object"):
            lines.append(line)
    return tuple(found)


def _side_effect(lines: list[str]) -> SideEffect | None:
    match = _HEAD.match(lines[0])
    if match is None:
        return None
    kind, how, name = match.groups()
    parts = _BETWEEN_STACKS.split("\n".join(lines[1:]))
    stacks = tuple(stack for stack in map(printed_stack_of, parts) if stack)
    made_inside = how == "source" and name == "created in torch.compile region"
    return SideEffect(type=kind, source=None if made_inside or how != "source name" else name, variable=_variable(how, name), stacks=stacks)


def _variable(how: str, name: str | None) -> str | None:
    """The name of a variable that an inner function changes (a cell), which torch gives without a source."""
    return name if how == "source" and name is not None and name.isidentifier() else None
