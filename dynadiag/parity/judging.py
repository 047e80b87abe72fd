"""What differs between the call of a graph and the call of its compiled form: values beyond eager's own noise, sizes, memory, gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from dynadiag.compare.calls import Call
from dynadiag.compare.judge import PARITY, Noise, Runs, judge, sharing_differences
from dynadiag.model.difference import Difference

_ASPECTS = {"value": "values", "alias": "aliasing"}


def to_json(difference: Difference) -> dict[str, Any]:
    """A difference as `parity.json` has it (docs/parity.schema.json)."""
    place = {"where": difference.where, "position": difference.index, "name": difference.name, "aspect": aspect_of(difference)}
    return {**place, **{name: getattr(difference, name) for name in ("eager", "compiled", "elements", "wrong_elements")}}


def aspect_of(difference: Difference) -> str:
    """The kind in the words of `parity.json`."""
    if difference.kind == "missing":
        return "missing_gradient" if difference.where == "gradient" else "values"
    return _ASPECTS.get(difference.kind, difference.kind)


def differences(eager: Call, compiled: Call, runs: Callable[[], Runs], *, values: bool, inputs: Sequence[Any] = ()) -> list[Difference]:
    """Everything that differs. `runs` gives more eager calls, in float64 and on inputs that are a bit off: only asked where values
    differ. `inputs` are those of the call, before it wrote any.

    `values` False compares all but values (random numbers, memory that nobody wrote).
    """
    before = [inputs[seen.index] if seen.where == "input" and seen.index < len(inputs) else None for seen in eager.seen]
    noise = Noise(runs=lambda _: runs(), before=before)
    no_values = frozenset() if values else frozenset(range(len(eager.seen)))
    judged = judge(eager.seen, [element.value for element in compiled.seen], noise, PARITY, no_values=no_values)
    found = [difference for item in judged for difference in item.differences]
    if len(eager.seen) != len(compiled.seen):
        counts = (f"{len(side.seen)} tensors" for side in (eager, compiled))
        return [replace(found[0], kind="layout", eager=next(counts), compiled=next(counts))]
    outputs = sum(entry.where == "output" for entry in eager.seen)
    shared = sharing_differences(eager.sharing, compiled.sharing, lambda at: f"output {at}" if at < outputs else f"input {at - outputs}")
    found += [replace(one, name=f"output {one.index} and {one.name}") for one in shared]
    # A gradient may lie in memory as it likes.
    return [one for one in found if not (one.kind == "stride" and one.where == "gradient")]
