"""The calls that the script made before the captured one, as a candidate: read from the files that the capture left beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch

from dynadiag.reduce.graphs.candidate import Call, Candidate
from dynadiag.reduce.graphs.inputs import Input
from dynadiag.reduce.graphs.loading import input_values, read_saved, recipes

Saved = Mapping[str, Any]


def with_earlier_calls(folder: Path, candidate: Candidate) -> Candidate | None:
    """The candidate of a capture folder with the calls of the same code before its own; None where none was kept.

    Where the capture went on after the graph's first call, the last call that was kept comes last. Calls of other graphs of the same code
    are taken where they have all inputs of this one, sizes apart, which are taken from their tensors.
    """
    own = _saved(folder / "inputs.pt")
    if own is None or "names" not in own:
        return None
    others = [mapping for path in sorted((folder.parent / Path(own["region"]).name).glob("*.pt")) if (mapping := _saved(path)) is not None]
    here = [own, *(item for item in others if item["graph"] == own["graph"])]
    last = max(here, key=lambda element: element["order"])
    lifted = candidate.inputs[len(own["names"]) :]
    before = [
        entry for entry in others if entry["order"] < last["order"] and (entry["graph"], entry["call"]) != (last["graph"], last["call"])
    ]
    made = [(one, call) for one in before if (call := _call(one, own, lifted)) is not None]
    final = _call(last, own, lifted)
    if final is None or not made:
        return None
    earlier = tuple(Call(call, grad=None if one["grad"] == last["grad"] else one["grad"]) for one, call in made)
    return replace(candidate, inputs=final, earlier=earlier)


def _saved(path: Path) -> Saved | None:
    """A file of the capture; None where it is missing or damaged."""
    try:
        return read_saved(path)
    except (OSError, ValueError, RuntimeError, EOFError, UnpicklingError):
        return None


def _call(mapping: Saved, own: Saved, lifted: Sequence[Input]) -> tuple[Input, ...] | None:
    """The inputs of a call in the order of the captured graph; None where one is not known."""
    made = dict(zip(mapping["names"], recipes(input_values(mapping), f"call {mapping['graph']}.{mapping['call']} input"), strict=True))
    values = dict(zip(mapping["names"], mapping["inputs"], strict=True))
    missing = [name for name in own["names"] if name not in made]
    sizes = dict(_sizes(missing, own["symbols"], values))
    if len(sizes) < len(missing):
        return None
    found = recipes([sizes[name] for name in missing], "size")
    made |= dict(zip(missing, found, strict=True))
    return (*(made[name] for name in own["names"]), *lifted)


def _sizes(missing: Sequence[str], symbols: Mapping[str, Any], values: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    for name in missing:
        tensor, dimension = symbols.get(name, (None, 0))
        if isinstance(values.get(tensor), torch.Tensor) and dimension < values[tensor].dim():
            yield name, int(values[tensor].shape[dimension])
