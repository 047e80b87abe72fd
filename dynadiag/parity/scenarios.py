"""Which calls a user could make that were not recorded: planned from what is known of a graph's inputs. No torch."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from dynadiag.fx.inputs import InputSpec

Kind = Literal["second_call", "same_tensor", "overlap_later", "overlap_first", "apart_later", "disk_cache"]
Arranged = Literal["recorded", "same", "overlap", "apart"]
MOST_PAIRS = 3
"""How many pairs of inputs are tried a kind; the others are named in the report."""
_ARGUMENT = re.compile(r"L\[(['\"])(?!___)[^'\"]+\1\](?:\[[^\]]*\])*$")
_RESUMED = "torch_dynamo_resume_in_"


@dataclass(frozen=True, slots=True)
class Pair:
    """Two inputs by position; `first` is the one that is written, where one is."""

    first: int
    second: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Calls of one compiled function, in order; `calls` says how the inputs of the pair lie in memory in each."""

    kind: Kind
    calls: tuple[Arranged, ...]
    pair: Pair | None = None
    on_disk: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A kind of scenario that was not tried, and why."""

    kind: Kind
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to try with a graph, and what not."""

    scenarios: tuple[Scenario, ...]
    skipped: tuple[Skipped, ...]


def make_plan(inputs: Sequence[InputSpec], written: frozenset[str], *, frame: str | None, caches: bool) -> Plan:
    """The scenarios for a graph with these inputs, of which `written` are mutated; `caches` says whether its back end caches on disk."""
    scenarios: list[Scenario] = [Scenario(kind="second_call", calls=("recorded", "recorded"))]
    skipped: list[Skipped] = []
    why_none = _why_no_pairs(frame)
    together = [] if why_none else sorted(_pairs(inputs, written), key=lambda pair: inputs[pair.first].name not in written)
    scenarios += [Scenario(kind="apart_later", calls=("recorded", "apart"), pair=pair) for pair in _sharing(inputs, together, written)]
    apart = [pair for pair in together if not _share(inputs, pair)]
    equal = [pair for pair in apart if _same_layout(inputs, pair)]
    overlapping = [pair for pair in apart if inputs[pair.first].name in written]
    skipped += _too_many("same_tensor", equal, inputs) + _too_many("overlap_later", overlapping, inputs)
    scenarios += [Scenario(kind="same_tensor", calls=("recorded", "same"), pair=pair) for pair in equal[:MOST_PAIRS]]
    for pair in overlapping[:MOST_PAIRS]:
        scenarios.append(Scenario(kind="overlap_later", calls=("recorded", "overlap"), pair=pair))
        scenarios.append(Scenario(kind="overlap_first", calls=("overlap", "recorded"), pair=pair))
    if caches:
        scenarios.append(Scenario(kind="disk_cache", calls=("recorded", "recorded"), on_disk=True))
        scenarios += [Scenario(kind="disk_cache", calls=("apart", "overlap"), pair=pair, on_disk=True) for pair in overlapping[:1]]
    else:
        skipped.append(Skipped(kind="disk_cache", reason="only inductor keeps compiled graphs on disk"))
    if not overlapping:
        skipped.append(Skipped(kind="overlap_later", reason=why_none or _why_no_overlap(inputs, written)))
    if not equal:
        skipped.append(Skipped(kind="same_tensor", reason=why_none or "no two arguments of equal shape, stride and dtype"))
    return Plan(scenarios=tuple(scenarios), skipped=tuple(dict.fromkeys(skipped)))


def _why_no_pairs(frame: str | None) -> str | None:
    if frame is not None and _RESUMED in frame:
        return "the code after a graph break gets its inputs from the code before it, not from a caller"
    return None


def _why_no_overlap(inputs: Sequence[InputSpec], written: frozenset[str]) -> str:
    if not any(input_.name in written for input_ in inputs):
        return "no input is written"
    reasons = sorted(_why_unusable(inputs, written)) or ["no other argument of a written input's dtype that could overlap with it"]
    return "; ".join(reasons)


def is_argument(input_spec: InputSpec) -> bool:
    """Whether a caller passes this tensor: an argument or an item of one, no attribute, no global, no value kept on the stack."""
    if input_spec.source is None:
        return input_spec.name.lower().startswith("l_") and not input_spec.name.lower().startswith("l_self_")
    return _ARGUMENT.match(input_spec.source) is not None


def _pairs(inputs: Sequence[InputSpec], written: frozenset[str]) -> Iterator[Pair]:
    """Pairs that a caller could make share memory, the written one first."""
    usable = [position for position, item in enumerate(inputs) if _usable(item)]
    for at, first in enumerate(usable):
        for second in usable[at + 1 :]:
            input_spec, other = inputs[first], inputs[second]
            if not _may_meet(input_spec, other) or (input_spec.dtype, input_spec.device) != (other.dtype, other.device):
                continue
            yield Pair(second, first) if other.name in written and input_spec.name not in written else Pair(first, second)


def _may_meet(input_spec: InputSpec, other: InputSpec) -> bool:
    """Two arguments, or an argument and a tensor that an object or module keeps: a cache of floats, no counter."""
    if is_argument(input_spec) and is_argument(other):
        return True
    kept = other if is_argument(input_spec) else input_spec
    several = kept.shape is not None and any(size > 1 for size in kept.shape)
    return (is_argument(input_spec) or is_argument(other)) and several and "float" in (kept.dtype or "")


def _usable(input_spec: InputSpec) -> bool:
    has_elements = input_spec.shape is not None and 0 not in input_spec.shape
    return (
        input_spec.kind == "tensor"
        and input_spec.static is None
        and not input_spec.requires_grad
        and input_spec.subclass is None
        and has_elements
    )


def _why_unusable(inputs: Sequence[InputSpec], written: frozenset[str]) -> set[str]:
    reasons = set()
    for input_ in inputs:
        if input_.kind != "tensor" or input_.name not in written or _usable(input_):
            continue
        if input_.static is not None:
            reasons.add("tensors of a module or with a static address are not overlapped with arguments")
        elif input_.requires_grad:
            reasons.add("written inputs that require grad are not overlapped")
        else:
            reasons.add("empty inputs and tensor subclasses are not overlapped")
    return reasons


def _sharing(inputs: Sequence[InputSpec], pairs: Sequence[Pair], written: frozenset[str]) -> list[Pair]:
    return [pair for pair in pairs if _share(inputs, pair) and inputs[pair.first].name in written][:MOST_PAIRS]


def _share(inputs: Sequence[InputSpec], pair: Pair) -> bool:
    return inputs[pair.first].storage is not None and inputs[pair.first].storage == inputs[pair.second].storage


def _same_layout(inputs: Sequence[InputSpec], pair: Pair) -> bool:
    input_spec, other = inputs[pair.first], inputs[pair.second]
    return (input_spec.shape, input_spec.stride) == (other.shape, other.stride)


def _too_many(kind: Kind, pairs: Sequence[Pair], inputs: Sequence[InputSpec]) -> list[Skipped]:
    left = len(pairs) - MOST_PAIRS
    return [Skipped(kind=kind, reason=f"{left} of {len(pairs)} pairs of inputs were not tried")] if left > 0 else []
