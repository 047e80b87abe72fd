"""What a call finds that Dynamo does not guard on by default, or not always: hooks, shadowed names, identities, shared memory."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping
from typing import Any

import torch

from dynadiag.capture.reach import State
from dynadiag.compare.aliasing import alias_pattern
from dynadiag.torch_compat.trace import stacks

_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
_REGISTERED = ("_parameters", "_buffers", "_modules")
_VALUES = (bool, int, float, complex, str, bytes, type(None), torch.Tensor, type)
Situation = Mapping[tuple[str, str], str]
"""(what, of what) and how it is; what is not there is not among them."""


def situation_of(state: State) -> Situation:
    """The situation of a call that can reach this state."""
    found: dict[tuple[str, str], str] = {}
    for name, root in state.modules.items():
        for inner, module in root.named_modules():
            place = f"{name}.{inner}" if inner else name
            for kind in _HOOKS:
                if hooks := getattr(module, kind, None):
                    found["hooks", f"{place}.{kind}"] = str(sorted(map(id, hooks.values())))
            for kind in _REGISTERED:
                for shadowed in module.__dict__.keys() & getattr(module, kind).keys():
                    found["shadowed name", f"{place}.{shadowed}"] = str(id(module.__dict__[shadowed]))
    names = list(state.held)
    for number, other, how in alias_pattern([state.held[name].tensor for name in names]):
        found["shared memory", f"{names[number]} and {names[other]}"] = how
    found.update(_identities(state))
    return found


def full_deques(state: State) -> list[str]:
    """The deques that drop an element for each that is appended. Inside a graph they do not (torch 2.11 to 2.15)."""
    values = {name: slot.get() for name, slot in state.slots.items()}
    return [name for name, value in values.items() if isinstance(value, deque) and value.maxlen is not None and len(value) == value.maxlen]


def _identities(state: State) -> Situation:
    """Which names mean one object: a test of identity asks for it."""
    first: dict[int, str] = {}
    found: dict[tuple[str, str], str] = {}
    for name, slot in state.slots.items():
        value: Any = slot.get()
        if isinstance(value, _VALUES) or callable(value):
            continue
        earlier = first.setdefault(id(value), name)
        if earlier != name:
            found["identity", name] = earlier
    return found


def changes_between(before: Situation, now: Situation) -> list[dict[str, Any]]:
    """What is otherwise in the second, as (what, of what, how it was, how it is)."""
    return [
        {"what": key[0], "name": key[1], "was": before.get(key, ""), "now": now.get(key, "")}
        for key in sorted(before.keys() | now.keys())
        if before.get(key) != now.get(key)
    ]


def writing_line(change: Mapping[str, str]) -> dict[str, Any] | None:
    """The line of the program that wrote the entry of an instance dictionary, as far as one alone of its callers' files does."""
    if change["what"] != "shadowed name":
        return None
    entry = re.escape(change["name"].rpartition(".")[2])
    return stacks.calling_line_like(rf"""^\s*(?:[\w.]+\.__dict__|vars\([^)]*\))\s*\[\s*['"]{entry}['"]\s*\]\s*=[^=]""")
