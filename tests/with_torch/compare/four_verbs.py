"""What each verb says of a triple, by calling its rule directly."""

from __future__ import annotations

import re
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from dynadiag.bench.inside.results import (
    Nudged,
    Reference,
    compare_all,
    detail_of,
    layout_of,
    numbers_in,
    other_layouts,
    status_of,
    tensors_in,
)
from dynadiag.compare.aliasing import sharing
from dynadiag.compare.calls import Call
from dynadiag.compare.judge import Runs, Seen
from dynadiag.compare.live.comparing import compare, compare_sharing
from dynadiag.parity.replaying import aspect_of, differences
from dynadiag.reduce.graphs.running import wrong

RIGHT = "right"


def verdicts(triple: Any) -> list[str]:
    """Those of explain --parity, parity, minify and bench."""
    return [_said(rule, triple) for rule in (explain, parity, minify, bench)]


def _said(rule: Any, triple: Any) -> str:
    try:
        return "; ".join(rule(triple)) or RIGHT
    except (RuntimeError, NotImplementedError, AttributeError) as error:
        return f"raises {type(error).__name__}"


def _count(one: Any) -> str:
    return "" if one.elements is None else f" {one.wrong_elements}/{one.elements}"


def explain(triple: Any) -> list[str]:
    runs = Runs(exact=triple.exact or (), further=triple.perturbed[:3])
    names = [f"value {at}" for at in range(len(triple.eager))]
    found = compare(triple.eager, triple.compiled, names, where=triple.where, anchors=lambda: runs, before=triple.before or ())
    was, now = triple.inputs
    shared = compare_sharing((triple.eager, was), (triple.compiled, now), [f"input {at}" for at in range(len(was))])
    return [f"{one.where} {one.index} {one.kind}{_count(one)}" for one in (*found, *shared)]


def _call(triple: Any, values: list[Any], inputs: Any) -> Call:
    where = "input" if triple.before else triple.where
    seen = tuple(Seen(where, at, f"value {at}", value) for at, value in enumerate(values))
    return Call(seen=seen, sharing=sharing(values, inputs), random=False)


def parity(triple: Any) -> list[str]:
    was, now = triple.inputs
    runs = Runs(exact=triple.exact or (), further=triple.perturbed[:2])
    if not triple.eager and len(triple.compiled):
        return []
    found = differences(
        _call(triple, triple.eager, was), _call(triple, triple.compiled, now), lambda: runs, values=True, inputs=triple.before or ()
    )
    return [f"{one.where} {one.index} {aspect_of(one)}{_count(one)}" for one in found]


def minify(triple: Any) -> list[str]:
    found = wrong(triple.compiled, triple.eager, triple.exact, runs=lambda: Runs(further=triple.perturbed[:3]), before=triple.before or ())
    if found is None:
        return []
    return [f"{found.kind}: {found.what}" if found.position is None else f"{found.kind}: result {found.position}: {found.what}"]


def _named(values: list[Any]) -> dict[str, Any]:
    named: dict[str, Any] = {}
    for at, value in enumerate(values):
        named |= {name: tensor.detach() for name, tensor in tensors_in(f"output[{at}]", value).items()}
        named |= {name: torch.tensor(number, dtype=torch.float64) for name, number in numbers_in(f"output[{at}]", value).items()}
    return named


def bench(triple: Any) -> list[str]:
    def laid_out(values: list[Any], inputs: Any) -> dict[str, Any]:
        given = [one for one in tree_leaves(list(inputs)) if isinstance(one, torch.Tensor)]
        outputs = {name: value for at, one in enumerate(values) for name, value in tensors_in(f"output[{at}]", one).items()}
        return {**_named(values), **layout_of(outputs, given)}

    def nudges(names: Any) -> Nudged:
        def kept(run: list[Any]) -> dict[str, Any]:
            return {name: value for name, value in _named(run).items() if name in names}

        return Nudged(further=[kept(run) for run in triple.perturbed], same=[kept(run) for run in triple.reordered])

    none = triple.exact is None and triple.again is not None
    reference = Reference(
        first=laid_out(triple.eager, triple.inputs[0]),
        second=_named(triple.again or []),
        exact=_named(triple.exact or []),
        nudged=_named(triple.perturbed[0]) if none else {},
        nudges=nudges if triple.perturbed else None,
        tf32=triple.tf32,
        before=_named(triple.before or []),
    )
    result = laid_out(triple.compiled, triple.inputs[1])
    found = [one for one in compare_all(reference, result) if status_of(one) != "PASS"]
    other = other_layouts(reference.first, result)
    said = [f"{one.name} {status_of(one)}: {re.sub(r'[0-9.]+e[-+][0-9]+|nan|inf(?!i)', 'x', detail_of(one))}" for one in found]
    return [*said, *([f"noted: {other.split(';')[0]}"] if other else [])]
