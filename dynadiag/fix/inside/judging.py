"""Whether two runs of a program gave the same: every call of what it compiles, by the one rule of `compare`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch

from dynadiag.capture.reach import strided_copy
from dynadiag.compare.judge import Noise, Rule, Runs, Seen, judge
from dynadiag.compare.rounding import HALF_UPDATE_TOLERANCE, on_fastest

FIX = Rule(facts=("layout", "shape", "dtype", "device"), strides=True)
"""Of `fix`: whether a value requires grad is compared beside it."""
PROGRAM = "the program"
"""The callee of the entries about the program as a whole, when it has ended."""
_WHERE = {"output": "output", "gradient": "gradient", "given": "input", "left": "input", "at": "attribute"}
_WHEN = {"before": "before", "after": "after", "gradients": "in the backward of"}
_STATE = frozenset(("given", "left", "at the end", "parameter"))
Call = Mapping[str, Any]


def load(path: str) -> list[dict[str, Any]]:
    """The calls of a file that `observing.CallLog` wrote; nothing in it is run."""
    calls: list[dict[str, Any]] = torch.load(path, weights_only=True)["calls"]
    return calls


def compared(calls: Sequence[Call]) -> dict[str, int]:
    """How many calls of each callable were observed."""
    found: dict[str, int] = {}
    for call in calls:
        if call["number"]:
            found[call["callee"]] = max(found.get(call["callee"], 0), call["number"])
    return found


def has_gradients(calls: Sequence[Call]) -> bool:
    """Whether anything that an observed call was given or gave requires grad."""
    entries = (value for call in calls for when in _WHEN for _, _, value in call.get(when, ()))
    return any(isinstance(value, dict) and value["requires_grad"] for value in entries)


def first_difference(
    reference: Sequence[Call],
    other: Sequence[Call],
    again: Sequence[Call] = (),
    noisy: Sequence[Sequence[Call]] = (),
    free: frozenset[str] = frozenset(),
    *,
    rounds: bool = False,
) -> str | None:
    """The first thing that is not the same, in words; None where all is.

    `again` is a second run of the reference, `noisy` are some whose sums were off by rounding: an optimizer may make that
    large. Attributes in `free` may be bound to other tensors; where both have one its values have to be the same. With `rounds`, another
    back end rounded what an optimizer makes steps of (`_is_step_on_rounding`).
    """
    begun: dict[str, dict[str, Any]] = {}
    if len(reference) != len(other):
        made = [sum(bool(call["number"]) for call in calls) for calls in (reference, other)]
        return f"{made[0]} calls of compiled callables were observed before, and {made[1]} now"
    for at, (mapping, two) in enumerate(zip(reference, other, strict=True)):
        if (mapping["callee"], mapping["number"]) != (two["callee"], two["number"]):
            return f"call {mapping['number']} of {mapping['callee']} is now call {two['number']} of {two['callee']}"
        beside = [
            run[at] if at < len(run) and (run[at]["callee"], run[at]["number"]) == (mapping["callee"], mapping["number"]) else {}
            for run in (again, *noisy)
        ]
        if rounds:
            begun.setdefault(mapping["callee"], given_at_first(mapping))
        for when in _WHEN:
            found = difference_of_entries(
                mapping.get(when, ()), two.get(when, ()), [run.get(when, ()) for run in beside], free, begun.get(mapping["callee"], {})
            )
            if found is not None:
                place = f"{_WHEN[when]} call {mapping['number']} of {mapping['callee']}" if mapping["number"] else "at the end"
                return f"{place}: {found}"
    return None


def difference_of_entries(
    reference: Sequence[Any],
    other: Sequence[Any],
    beside: Sequence[Sequence[Any]] = (),
    free: frozenset[str] = frozenset(),
    begun: Mapping[str, Any] = MappingProxyType({}),
) -> str | None:
    """The first entry (where, name, value) that is not the same, in words; `beside` are the same entries of other runs of the reference,
    `begun` what was given at first of those that may be off as an optimizer's steps are.
    """
    before, after, *more = ({(where, name): value for where, name, value in entries} for entries in (reference, other, *beside))
    for here, there, what in ((before, after, "is gone"), (after, before, "was not there")):
        changed = next((key for key in here if key not in there and not _is_free(key[1], free)), None)
        if changed is not None:
            return f"{' '.join(changed)} {what}"
    for (where, name), value in before.items():
        if where == "rebound" and free:
            value, after[where, name] = ([item for item in names if not _is_free(item, free)] for names in (value, after[where, name]))
        if (where, name) not in after:
            continue
        found = _of_value(where, name, value, after[where, name], [run.get((where, name)) for run in more])
        kept = begun.get(name) if where in _STATE else None
        if found is not None and not _is_step_on_rounding(kept, value, after[where, name]):
            return f"{where} {name}: {found}"
    return None


def given_at_first(call: Call) -> dict[str, Any]:
    """What a call was given, by name: of the first one that is where the optimizer's steps begin."""
    return {name: value for where, name, value in call.get("before", ()) if where == "given"}


def without_attributes(calls: Sequence[Call], names: frozenset[str]) -> Sequence[Call]:
    """The calls without what they hold of attributes with these names."""
    if not names:
        return calls
    return [
        {**call, **{when: [entry for entry in call[when] if not _is_free(entry[1], names)] for when in _WHEN if when in call}}
        for call in calls
    ]


def _is_step_on_rounding(begun: Any, item: Any, two: Any) -> bool:
    """Whether a parameter is off as Adam's steps on gradients of rounding alone are: whole steps, of some elements, either way.

    Such a step has the size of any other. So none is farther off than all steps to there and back, and half of what moved agrees.
    """
    if not all(isinstance(value, dict) for value in (begun, item, two)):
        return False
    first, value, other = (on_fastest(entry["tensor"]) for entry in (begun, item, two))
    if not value.is_floating_point() or not first.shape == value.shape == other.shape or not bool(torch.isfinite(other).all()):
        return False
    moved, off = (value.double() - first.double()).abs(), (value.double() - other.double()).abs()
    steps = moved > 0
    if not bool(steps.any()) or bool((off > 2 * moved.max()).any()):
        return False
    return bool((off[steps] / moved[steps]).median() <= HALF_UPDATE_TOLERANCE)


def _is_free(name: str, free: frozenset[str]) -> bool:
    return name.partition(" ")[0].rpartition(".")[2] in free


def _of_value(where: str, name: str, item: Any, two: Any, beside: Sequence[Any]) -> str | None:
    tensors = isinstance(item, dict), isinstance(two, dict)
    if tensors == (True, True):
        if item["requires_grad"] != two["requires_grad"]:
            return f"required {'a' if item['requires_grad'] else 'no'} gradient, now {'a' if two['requires_grad'] else 'none'}"
        layouts = item.get("layout", "a tensor"), two.get("layout", "a tensor")
        if layouts[0] != layouts[1]:
            return f"was {layouts[0]}, now {layouts[1]}"
        eager = _on_its_device(item)
        seen = Seen(_WHERE.get(where.partition(" ")[0], "attribute"), 0, name, eager)
        noise = _noise([_on_its_device(run) if isinstance(run, dict) else None for run in beside], eager)
        differences = judge([seen], [_on_its_device(two)], noise, FIX)[0].differences
        if not differences:
            return None
        first = differences[0]
        detail = f" ({first.detail})" if first.detail else ""
        return f"{first.kind} was {first.eager}, now {first.compiled}{detail}"
    if isinstance(item, str) and item.startswith("not compared: "):
        return f"a {item.removeprefix('not compared: ')} cannot be compared"
    if type(item) is float and type(two) is float:
        seen = Seen("output", 0, name, item)
        noise = _noise(beside, item)
        return f"was {item!r}, now {two!r}" if judge([seen], [two], noise, FIX)[0].differences else None
    if type(item) is not type(two) or item != two:
        return f"was {_short(item)}, now {_short(two)}"
    return None


def _on_its_device(value: Mapping[str, Any]) -> torch.Tensor:
    """A noted tensor where the program had it, with its strides; runs keep their copies in the host's memory."""
    kept: torch.Tensor = value["tensor"]
    if value["device"] == "cpu":
        return kept
    on_device: torch.Tensor = strided_copy(kept, value["device"])
    return on_device


def _noise(beside: Sequence[Any], value: Any) -> Noise:
    """What a second run and noisy ones gave for a value, where they gave one of its kind."""
    again, *noisy = (item if _alike(item, value) else None for item in beside)
    further = [[element] for element in noisy if element is not None]
    runs = (lambda _positions: Runs(further=further)) if further else None
    return Noise(again=() if again is None else (again,), runs=runs)


def _alike(item: Any, value: Any) -> bool:
    if isinstance(item, torch.Tensor) and isinstance(value, torch.Tensor):
        return (item.shape, item.dtype, item.device) == (value.shape, value.dtype, value.device)
    return type(item) is type(value)


def _short(value: Any) -> str:
    text = "a tensor" if isinstance(value, dict) else repr(value)
    return text if len(text) < 160 else f"{text[:157]}..."
