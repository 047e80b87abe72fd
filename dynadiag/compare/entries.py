"""Entries of two runs of one call compared: each value by the one rule, everything else by equality."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from dynadiag.compare.aliasing import same_bits
from dynadiag.compare.judge import Noise, Rule, Runs, Seen, judge
from dynadiag.compare.notes import Entry
from dynadiag.model.difference import Difference

Entries = Mapping[tuple[str, str], Any]
_RULE = Rule(facts=("layout", "shape", "dtype", "device"))
_WHERE = {
    "output": "output",
    "autograd": "output",
    "shared memory": "output",
    "backward": "gradient",
    "gradient": "gradient",
    "left": "input",
}
_DRAWN = "random numbers"
_RAISED = ("raised", "the call")
_OF_TORCH = ("torch", "cuda")
"""Compiled code may draw in another way: of torch's generators it counts whether they were used, which nobody compares here."""


@dataclass(frozen=True, kw_only=True)
class OtherRuns:
    """More runs of the reference, each made when first asked for: the `same` once more, with `other_draws`, and with `noise` alone."""

    same: Callable[[], Entries | None]
    other_draws: Callable[[], Sequence[Entries]]
    noise: Callable[[], NoisyEntries]


@dataclass(frozen=True, kw_only=True)
class NoisyEntries:
    """Runs whose sums are off by rounding, from states that are off by a rounding (`further`) or the `same`, and one in float64."""

    further: Sequence[Entries] = ()
    same: Sequence[Entries] = ()
    exact: Entries | None = None
    coarsest: torch.dtype | None = None


@dataclass
class Compared:
    """What was found: differences, whether all values were equal to the bit, how many were compared, and of which nothing can be said."""

    differences: list[Difference] = field(default_factory=list)
    to_the_bit: bool = True
    values: int = 0
    random: int = 0
    unsteady: int = 0
    not_compared: int = 0


def by_name(entries: Sequence[Entry]) -> dict[tuple[str, str], Any]:
    """The entries by where and name."""
    return {(where, name): value for where, name, value in entries}


def compare_entries(eager: Entries, compiled: Entries, runs: OtherRuns) -> Compared:
    """What the compiled call gave or left otherwise than eager. A value that eager itself does not give twice is only counted."""
    found = Compared()
    raised, raised_compiled = (entries.get(_RAISED) for entries in (eager, compiled))
    if raised is not None or raised_compiled is not None:
        if _class_of(raised) != _class_of(raised_compiled):
            kind = "raises" if raised is None else "accepts"
            _keep(found, _RAISED, _difference(_RAISED, kind, raised or "nothing", raised_compiled or "nothing"), runs)
        return found
    for key, value in eager.items():
        if key[0] == _DRAWN and key[1] in _OF_TORCH:
            continue
        if isinstance(value, str) and value.startswith("not compared: "):
            found.not_compared += 1
            continue
        found.values += 1
        _compare(key, value, compiled, runs, found)
    for key in compiled.keys() - eager.keys():
        _keep(found, key, _difference(key, "missing", "nothing", _words(compiled[key])), runs)
    return found


def _class_of(raised: str | None) -> str | None:
    return None if raised is None else raised.partition(":")[0]


def _compare(key: tuple[str, str], value: Any, compiled: Entries, runs: OtherRuns, found: Compared) -> None:
    if key not in compiled:
        _keep(found, key, _difference(key, "missing", _words(value), "nothing"), runs)
        return
    other = compiled[key]
    if isinstance(value, dict) and isinstance(other, dict):
        _compare_tensors(key, value, other, runs, found)
    elif type(value) is float and type(other) is float:
        if repr(value) != repr(other):
            found.to_the_bit = False
            for difference in _judged(key, value, other, runs, lambda item: item if type(item) is float else None):
                _keep(found, key, difference, runs)
    elif type(value) is not type(other) or value != other:
        _keep(found, key, _difference(key, _kind(key), _words(value), _words(other)), runs)


def _compare_tensors(key: tuple[str, str], value: Mapping[str, Any], other: Mapping[str, Any], runs: OtherRuns, found: Compared) -> None:
    facts = [
        _difference(key, name, str(value.get(name)), str(other.get(name)))
        for name in ("requires_grad", "layout", "device")
        if value.get(name) != other.get(name)
    ]
    for difference in facts:
        _keep(found, key, difference, runs)
    tensor, compiled = value["tensor"], other["tensor"]
    if facts or same_bits(tensor, compiled):
        return
    found.to_the_bit = False
    if not _judged(key, tensor, compiled, runs, lambda _: None):
        return
    if any(_tensor(run.get(key)) is None or not same_bits(tensor, run[key]["tensor"]) for run in runs.other_draws()):
        found.random += 1
        return
    found.differences += _judged(key, tensor, compiled, runs, _tensor, noisy=True)


def _judged(
    key: tuple[str, str], value: Any, other: Any, runs: OtherRuns, pick: Callable[[Any], Any], *, noisy: bool = False
) -> list[Difference]:
    """By the one rule; with `noisy` the other runs of eager say how much of it is rounding."""
    again = pick((runs.same() or {}).get(key)) if noisy else None
    noise = Noise(again=() if again is None else (again,), runs=(lambda _: _runs_of(key, value, runs, pick)) if noisy else None)
    seen = Seen(_WHERE.get(key[0], "attribute"), 0, _name(key), value, number=not isinstance(value, torch.Tensor))
    return list(judge([seen], [other], noise, _RULE)[0].differences)


def _runs_of(key: tuple[str, str], value: Any, runs: OtherRuns, pick: Callable[[Any], Any]) -> Runs:
    made = runs.noise()

    def of(several: Sequence[Entries]) -> Iterator[list[Any]]:
        for run in several:
            item = pick(run.get(key))
            if item is not None and getattr(item, "shape", None) == getattr(value, "shape", None):
                yield [item]

    exact = pick(made.exact.get(key)) if made.exact is not None else None
    return Runs(further=list(of(made.further)), same=list(of(made.same)), exact=() if exact is None else (exact,), coarsest=made.coarsest)


def _tensor(item: Any) -> Any:
    return item["tensor"] if isinstance(item, dict) else None


def _keep(found: Compared, key: tuple[str, str], difference: Difference, runs: OtherRuns) -> None:
    """A difference counts if eager gives the same twice."""
    found.to_the_bit = False
    first, again = difference.eager, runs.same()
    now = "nothing" if again is None or key not in again else _words(again[key])
    if difference.kind in ("requires_grad", "layout", "device", "value") or now == first:
        found.differences.append(difference)
    else:
        found.unsteady += 1


def _kind(key: tuple[str, str]) -> str:
    return {"shared memory": "alias", "autograd": "autograd", "version": "version", "raised": "raises"}.get(key[0], "state")


def _difference(key: tuple[str, str], kind: str, eager: str, compiled: str) -> Difference:
    where = "call" if key[0] == "raised" else _WHERE.get(key[0], "attribute")
    number = key[1].removeprefix("output ").partition(" ")[0]
    index = int(number) if where == "output" and number.isdigit() else 0
    return Difference(kind=kind, where=where, index=index, name=_name(key), eager=eager, compiled=compiled)


def _name(key: tuple[str, str]) -> str:
    return key[1] if key[0] != _DRAWN else f"the random numbers of {key[1]}"


def _words(value: Any) -> str:
    if isinstance(value, dict):
        return f"a tensor of {tuple(value['tensor'].shape)}"
    if isinstance(value, list):
        return ", ".join(map(str, value))[:300] or "no shared memory"
    return value if isinstance(value, str) else repr(value)[:300]
