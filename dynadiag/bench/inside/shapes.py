"""Shapes that a script calls its compiled callable with: noted while it runs, replayed after one of its calls was taken over."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from dynadiag.bench.inside.checking import CheckOutcome, check_arm, check_eager, needs_own_setting
from dynadiag.bench.inside.probing import probe
from dynadiag.bench.inside.reference import prime_and_expect
from dynadiag.bench.inside.results import tensors_in
from dynadiag.bench.inside.steps import CallUnit
from dynadiag.bench.inside.timing import Block, Timer
from dynadiag.capture.compiled_calls import CompiledCallable
from dynadiag.capture.reach import Mode
from dynadiag.torch_compat.dynamo.counters import clear_compile_facts, compile_facts

MOST_SHAPES = 16
MOST_BYTES = 1 << 30
_SETTLING_CALLS = 2

# Of each tensor argument: its name, its sizes, and what else a compiled program is made for.
Signature = tuple[tuple[str, tuple[int, ...], str, str, bool], ...]


@dataclass(kw_only=True)
class SeenShape:
    """Calls with equal shapes in one mode: the arguments of the first of them (None where they were not kept), and how many there were."""

    signature: Signature
    mode: Mode
    first_call: int
    calls: int = 1
    arguments: tuple[Any, ...] | None = None
    keywords: Mapping[str, Any] = field(default_factory=dict)
    names: tuple[str, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether the arguments were kept and still have the sizes that they had; a tensor can be resized in place."""
        return self.arguments is not None and signature_of(self.arguments, self.keywords, self.names) == self.signature


def parameter_names(owner: Any) -> tuple[str, ...]:
    """The names of what `owner` takes by position, as far as they are known; for a module those of its forward."""
    import torch

    function = owner.forward if isinstance(owner, torch.nn.Module) else owner
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return ()
    return tuple(item.name for item in parameters if item.kind in (item.POSITIONAL_ONLY, item.POSITIONAL_OR_KEYWORD))


def signature_of(arguments: tuple[Any, ...], keywords: Mapping[str, Any], names: tuple[str, ...] = ()) -> Signature:
    """The tensors in the arguments of a call, by name; numbers and other objects do not count as shapes."""
    found: dict[str, Any] = {}
    for at, argument in enumerate(arguments):
        found.update(tensors_in(names[at] if at < len(names) else f"arguments[{at}]", argument))
    for name, argument in keywords.items():
        found.update(tensors_in(str(name), argument))
    return tuple(
        (name, tuple(int(size) for size in value.shape), str(value.dtype).removeprefix("torch."), value.device.type, value.requires_grad)
        for name, value in found.items()
    )


class ShapeLog:
    """Counts the calls of each compiled callable by shape, and keeps the first arguments of each (16 shapes a callable, 1 GiB in all).

    Arguments are kept as the script passes them, not copied; `cut` takes them off the operations that made them.
    """

    def __init__(self, cut: Callable[[Any], Any]) -> None:
        self._cut = cut
        self._seen: dict[int, dict[tuple[Signature, Mode], SeenShape]] = {}
        self._names: dict[int, tuple[str, ...]] = {}
        self._bytes = 0

    def note(self, callee: CompiledCallable, call: int, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """One call, before it is made."""
        number, owner = callee.number, callee.original
        arguments, keywords = self._cut(args), self._cut(dict(kwargs))
        names = self._names.get(number)
        if names is None:
            names = self._names[number] = parameter_names(owner)
        key = (signature_of(arguments, keywords, names), Mode.of(owner))
        seen = self._seen.setdefault(number, {})
        if key in seen:
            seen[key].calls += 1
            return
        seen[key] = SeenShape(signature=key[0], mode=key[1], first_call=call, names=names)
        size = _bytes_of(arguments, keywords)
        if len(seen) <= MOST_SHAPES and self._bytes + size <= MOST_BYTES:
            self._bytes += size
            seen[key].arguments, seen[key].keywords = arguments, keywords

    def seen(self, number: int) -> list[SeenShape]:
        """What was noted about one callable, in the order in which shapes first came."""
        return list(self._seen.get(number, {}).values())


def _bytes_of(arguments: Any, keywords: Any) -> int:
    tensors = tensors_in("", [arguments, keywords]).values()
    return sum(int(value.numel()) * int(value.element_size()) for value in tensors)


def most_seen(seen: list[SeenShape], mode: Mode) -> SeenShape | None:
    """The shape of most calls in this mode whose arguments are there; the first of equals."""
    return max((item for item in seen if item.mode == mode and item.is_whole), key=lambda element: element.calls, default=None)


@dataclass(kw_only=True)
class ShapeReplay:
    """The shapes that can be replayed around `unit`, in the order in which the script first had them, and the calls that cannot."""

    unit: CallUnit
    seen: list[SeenShape]
    left_out: dict[str, int]
    eager: bool = False
    cuda: bool = False
    units: list[CallUnit] = field(default_factory=list)
    timers: list[Timer] = field(default_factory=list)

    @classmethod
    def of(cls, unit: CallUnit, seen: list[SeenShape], mode: Mode, make: Callable[[SeenShape], CallUnit]) -> ShapeReplay:
        """A unit for each shape that was seen in this mode; calls of another mode need its contexts, which are gone."""
        left_out: dict[str, int] = {}
        replayed = []
        for item in seen:
            if item.mode != mode:
                why = "in a different mode (grad mode, autocast, training)"
            elif item.arguments is None:
                why = f"more than the {MOST_SHAPES} shapes or the {MOST_BYTES >> 30} GiB of arguments that are kept"
            elif not item.is_whole:
                why = "of arguments that were resized afterwards"
            else:
                replayed.append(item)
                continue
            left_out[why] = left_out.get(why, 0) + item.calls
        replay = cls(unit=unit, seen=replayed, left_out=left_out)
        replay.units = [replace(make(element), own_backward=unit.own_backward, function=unit.function) for element in replayed]
        return replay

    def listed(self) -> dict[str, Any]:
        """Each shape with its tensors and counts, and calls that are not replayed with the reason."""
        keys = ("name", "shape", "dtype", "device", "requires_grad")
        shapes = [
            {"tensors": [dict(zip(keys, pair, strict=True)) for pair in seen.signature], "calls": seen.calls, "first_call": seen.first_call}
            for seen in self.seen
        ]
        return {"shapes": shapes, "left_out": self.left_out}

    def check(self, index: int) -> dict[str, Any]:
        """The check of results on one shape."""
        unit = self.units[index]
        expected = prime_and_expect(unit, eager_arm=self.eager)
        outcome = check_eager(expected)
        if outcome is None and not self.eager:
            if needs_own_setting(expected):
                _forget()
            outcome = check_arm(unit, expected, first=None)
            if needs_own_setting(expected):
                _forget()
        return asdict(outcome or CheckOutcome(status="PASS", compared=len(expected.recorded.first)))

    def settle(self) -> dict[str, Any]:
        """Compile as the script's own loop would, shapes in their first order, from empty caches: what was compiled for all of them."""
        if self.eager:
            return {}
        _forget()
        clear_compile_facts()
        for unit in self.units:
            for _ in range(_SETTLING_CALLS):
                unit.run_step()
        facts = compile_facts()
        return {key: facts[key] for key in ("graphs", "breaks", "recompiles", "limit_hits")}

    def warm(self, index: int) -> dict[str, Any]:
        """Call one shape until nothing is compiled any more."""
        return asdict(self._timer(index).warm_up())

    def block(self, index: int, calls: int) -> Block:
        """One timed block of one shape."""
        return self._timer(index).block(calls)

    def regions(self, index: int) -> float:
        """Compiled regions that one call of this shape enters."""
        return probe(self.units[index].run_step, cuda=self.cuda).regions

    def _timer(self, index: int) -> Timer:
        if not self.timers:
            self.timers = [Timer(unit.run_step, cuda=self.cuda) for unit in self.units]
        return self.timers[index]


def _forget() -> None:
    import torch

    torch.compiler.reset()
