"""A captured graph that does not fail when it is called once as it stands: with dynamic sizes, after earlier calls, and several times."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch

from dynadiag.errors import NothingFoundError
from dynadiag.reduce.graphs.candidate import Call, Candidate
from dynadiag.reduce.graphs.inputs import Input, PlainInput
from dynadiag.reduce.graphs.levels import reduce_captured_graph
from dynadiag.reduce.graphs.loading import input_values, read_saved, recipes
from dynadiag.reduce.graphs.passes.inputs import simple_data
from dynadiag.reduce.graphs.reduction import PASSES_ALONE, Reduction, ReductionOptions
from dynadiag.reduce.graphs.setting import Setting

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


_COUNTS = (2, 3, 4, 8, 16, 32)
_MOST_CALLS = 64
_IN_PLACE = re.compile(r"Error: .*\bin-?place\b")
_NUMBERS = 2
"""How many calls a comparison of numbers is given: the second call shows what the first left behind."""


@dataclass(frozen=True, kw_only=True)
class CallsMade:
    """What is known of the calls in the script: `later_call` is the number of the one that failed, None where none did; `sequence` is the
    candidate with the calls that came before, None where none was captured; `printed` is what the script printed where it failed after a
    call, outside of the graph.
    """

    later_call: int | None = None
    sequence: Candidate | None = None
    printed: str | None = None


def reduce_calls(candidate: Candidate, setting: Setting, options: ReductionOptions, made: CallsMade = CallsMade()) -> Reduction:
    """The reduction of the graph called once; where that passes, with dynamic sizes, then in the calls that the script made, then called as
    few times as show the failure.

    Raises NothingFoundError with what the first said, and in how many ways it was tried.
    """
    try:
        return reduce_captured_graph(candidate, setting, options)
    except NothingFoundError as error:
        if error.slug != PASSES_ALONE:
            raise
        first = error
    tried = []
    for what, other, around in _ways(candidate, setting, made):
        tried.append(what)
        try:
            return reduce_captured_graph(other, around, replace(options, printed=made.printed) if around.writes else options)
        except NothingFoundError as error:
            if error.slug == "environment":
                raise
    also = f"; nor {', '.join(tried)}" if tried else ""
    raise NothingFoundError(f"{first.message}{also}", slug=PASSES_ALONE, exit_code=first.exit_code) from first


def _ways(candidate: Candidate, setting: Setting, made: CallsMade) -> Iterator[tuple[str, Candidate, Setting]]:
    """What is tried, the simplest first."""
    later_call = made.later_call
    if made.printed is not None and _IN_PLACE.search(made.printed):
        # What autograd forbids for a result of compiled code only the caller can show.
        yield "with a write into its results", candidate, replace(setting, writes=True, backward=False)
    if setting.dynamic is None and any(isinstance(input_, PlainInput) and type(input_.value) is int for input_ in candidate.inputs):
        # Sizes are inputs of the graph: Dynamo made them symbols, which it does not do again for a first call.
        yield "with dynamic sizes", candidate, replace(setting, dynamic=True)
    sequence = made.sequence
    if sequence is not None and len({call.layout() for call in sequence.calls}) > 1:
        yield _named(sequence), sequence, setting
        sequence = None
    if setting.check != "raises":
        # With the same numbers in each call, what a call keeps of an earlier one is not wrong.
        drawn = next(simple_data(candidate), candidate)
        yield "called twice with random inputs", drawn, replace(setting, calls=_NUMBERS)
    elif later_call is not None and 1 < later_call <= _MOST_CALLS:
        for calls in (*(count for count in _COUNTS if count < later_call), later_call):
            yield f"called {calls} times", candidate, replace(setting, calls=calls)
    if sequence is not None:
        # Calls that differ in their data alone.
        yield _named(sequence), sequence, setting


def _named(sequence: Candidate) -> str:
    return f"called {len(sequence.calls)} times with the script's arguments"
