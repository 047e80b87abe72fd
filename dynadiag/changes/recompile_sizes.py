"""Cures for recompiles because of the size of a tensor."""

from __future__ import annotations

import re
from collections.abc import Iterable

from dynadiag.changes.recompile_cause import CONFIG, Cause
from dynadiag.facts.guard_sources import dimension
from dynadiag.facts.wording import listed, short_place
from dynadiag.model.report import Advice
from dynadiag.source.uses import python_needs


def size_advice(cause: Cause) -> Iterable[Advice]:
    """Another size than the one that was compiled for; the sizes 0 and 1 are compiled on their own, whatever is marked."""
    if {"0", "1"} & set(cause.values):
        return ()
    if cause.on_parameter or cause.parameter is not None:
        return _parameter_shapes(cause)
    if cause.dynamic_false:
        return drop_dynamic_false(cause)
    return _marked(cause)


def _parameter_shapes(cause: Cause) -> Iterable[Advice]:
    # The second is asked first for parameters of torch's own modules (`tensor_always_has_static_shape`, `_dynamo/utils.py`).
    options = (f"{CONFIG}force_parameter_static_shapes", f"{CONFIG}force_nn_module_property_static_shapes")
    named, given = cause.parameter, dimension(cause.source)
    if named is None or (given is not None and given[0] == named):
        text = f"`{cause.source}` is a size of a parameter, which torch keeps static."
    else:
        text = f"`{named}` is a parameter, whose sizes torch keeps static, and `{cause.source}` is one of them."
    text = f"{text} Allow dynamic parameter sizes before the first call."
    passed = None if named is None else cause.passed(named)
    if passed is not None:
        text += f" Passing `{passed.text}.detach()` does the same where the call computes no gradient of it."
    yield Advice(
        slug="parameter-shapes",
        text=text,
        after="\n".join(f"{option} = False" for option in options),
        options=options,
    )


def drop_dynamic_false(cause: Cause) -> Iterable[Advice]:
    """What every compilation of the function was told keeps each value apart; torch makes dynamic what has changed once.

    Not where Python needs the value, so that each is compiled apart all the same, or where it is not known: without the source.
    """
    known = cause.frame_name == "<lambda>" if cause.function is None else not python_needs(cause.function, cause.source)
    if len(cause.values) > 2 and known:
        text = "`dynamic=False` recompiles for every size and integer. Remove it: torch then makes what changed dynamic."
        yield Advice(slug="drop-dynamic-false", text=text)


def _marked(cause: Cause) -> Iterable[Advice]:
    """All dimensions that vary marked on the line before the call, if torch made them dynamic at their first change.

    Established: what torch made dynamic then it can make dynamic in the first call, and the line shows which objects these are. A mark on
    one size alone ends nothing where another one is tied to it, such as that of a mask. No tensor is marked that another compiled function
    was given before: in the next round that one would get the same tensor marked, and be compiled once more.
    """
    if cause.dynamic is not True or cause.stays >= cause.recompiles or dimension(cause.source) not in cause.varying:
        return
    given = [cause.passed(tensor) for tensor, _ in cause.varying]
    found = [argument for argument in given if argument is not None]
    others = [[cause.passed(tensor, at) for tensor, _ in cause.varying] for at in cause.entered[1:]]
    same = all(item is not None and item.text == first.text for line in others for item, first in zip(line, found, strict=False))
    if len(found) < len(given) or not same or (others and not all(element.is_name for element in found)):
        return
    if any(entry.is_name and re.split(r"[.\[]", entry.text, maxsplit=1)[0] in cause.passed_before for entry in found):
        return
    marks = sorted(zip(found, (index for _, index in cause.varying), strict=True), key=lambda mark: (mark[0].node.col_offset, mark[1]))
    line, told = cause.line, [f"dimension {index} of `{one.text}`" for one, index in marks]
    said = f"{told[0]} varies" if len(told) == 1 else f"{', '.join(told[:-1])} and {told[-1]} vary"
    made = {one.name: one for one in found if not one.is_name}
    first = (
        *(f"{name} = {one.text}" for name, one in made.items()),
        *(f"torch._dynamo.maybe_mark_dynamic({one.name}, {i})" for one, i in marks),
    )
    yield Advice(
        slug="mark-dynamic",
        text=f"Say before {_where(cause)} that {said}, so the first version is dynamic already.",
        before=line.code,
        after="\n".join((*first, line.replaced_all((one.node, name) for name, one in made.items()))),
    )


def _where(cause: Cause) -> str:
    """The calls that the marks belong before: where they are, when that is not the one line that the finding shows."""
    if len(cause.entered) > 1:
        return f"each of the calls at {listed([short_place(location) for location in cause.entered])}"
    (only,) = cause.entered
    same = cause.call is not None and (cause.call.file, cause.call.line) == (only.file, only.line)
    return "the call" if same else f"the call at {short_place(only)}"
