"""What differs between the tensors and sizes that two compilations were made for, by the names that the program gives them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dynadiag.facts.guard_sources import dimension, readable
from dynadiag.facts.lookups import traced_by_frame
from dynadiag.model.graph import TracedInput
from dynadiag.model.run import Frame, Run
from dynadiag.start.result import Cause

_FIELDS = ("dtype", "device", "shape", "stride", "requires_grad")
_MARK_DYNAMIC = "If the size varies, mark it before the first call: torch._dynamo.mark_dynamic({name}, {dim})"
_MOST = 4


def input_causes(old: Run, was: Frame, new: Run, now: Frame) -> list[Cause]:
    """Tensors of both compilations that differ: the program's own first, of parameters that changed alike one with how many more."""
    before, after = _by_source(old, was), _by_source(new, now)
    found: list[Cause] = []
    parameters: list[Cause] = []
    for source, tensor in after.items():
        earlier = before.get(source)
        if earlier is not None and (cause := _difference(source, earlier, tensor)) is not None:
            (parameters if tensor.is_parameter else found).append(cause)
    if parameters:
        more = f", and {len(parameters) - 1} more parameters" if len(parameters) > 1 else ""
        first = parameters[0]
        found.append(Cause(kind="input", what=f"{first.what}{more}", old=first.old, new=first.new, parts=first.parts))
    return found[:_MOST]


def _by_source(run: Run, frame: Frame) -> Mapping[str, TracedInput]:
    return {tensor.source: tensor for tensor in traced_by_frame(run).get(frame.id, ())}


def _difference(source: str, old: TracedInput, new: TracedInput) -> Cause | None:
    """The first field that differs: others follow from it, such as strides from a shape."""
    for field in _FIELDS:
        was, now = getattr(old, field), getattr(new, field)
        if was != now and None not in (was, now):
            name = readable(source)
            return Cause(
                kind="input",
                what=f"{field} of {'parameter' if new.is_parameter else 'input'} `{name}`",
                old=_shown(was),
                new=_shown(now),
                cure=_cure(name, field, was, now) if not new.is_parameter else None,
            )
    return None


def _cure(name: str, field: str, was: object, now: object) -> str | None:
    if field != "shape" or not isinstance(was, tuple) or not isinstance(now, tuple) or len(was) != len(now):
        return None
    dims = [at for at, (one, other) in enumerate(zip(was, now, strict=True)) if one != other]
    return _MARK_DYNAMIC.format(name=name, dim=dims[0] if len(dims) == 1 else dims) if min(*was, *now, 2) >= 2 else None


def _shown(value: object) -> str:
    return f"[{', '.join(map(str, value))}]" if isinstance(value, tuple) else str(value).removeprefix("torch.")


def dynamic_causes(old: Run, was: Frame, new: Run, now: Frame) -> Iterator[Cause]:
    """Sizes that were numbers in one compilation and symbols in the other."""
    before, after = _symbols(old, was), _symbols(new, now)
    came, went = sorted(after.keys() - before.keys()), sorted(before.keys() - after.keys())
    for sources, word in ((came, "is dynamic now"), (went, "is no longer dynamic")):
        if sources:
            first = sources[0]
            found = dimension(readable(first))
            name = readable(first) if found is None else f"size {found[1]} of `{found[0]}`"
            more = f" and {len(sources) - 1} more" if len(sources) > 1 else ""
            static = (old, was) if sources is came else (new, now)
            size = _size(found, *static) or (after if sources is came else before)[first]
            yield Cause(
                kind="dynamic",
                what=f"{name}{more} {word}",
                old=size if sources is came else "dynamic",
                new="dynamic" if sources is came else size,
                cure="Decide it for each start: mark_dynamic or dynamic=False; torch's profile (PGO) may have made it dynamic"
                if sources is came
                else None,
            )


def _size(place: tuple[str, int] | None, run: Run, frame: Frame) -> str | None:
    """The number that a size was in a compilation in which it was none of its symbols."""
    for source, tensor in _by_source(run, frame).items():
        if place is not None and readable(source) == place[0] and tensor.shape is not None and place[1] < len(tensor.shape):
            return str(tensor.shape[place[1]])
    return None


def _symbols(run: Run, frame: Frame) -> dict[str, str | None]:
    return {symbol.source: symbol.value for symbol in run.symbols if symbol.frame == frame.id and not symbol.specialized}
