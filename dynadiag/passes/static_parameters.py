"""Sizes that are compiled one by one because a parameter has them, whose sizes torch keeps static (`tensor_always_has_static_shape`,
`torch/_dynamo/utils.py`, 2.11 and 2.15): the guard that fails first may be that of another tensor with the same sizes.
"""

from __future__ import annotations

from collections.abc import Mapping

from dynadiag.facts.guard_sources import dimension, readable
from dynadiag.facts.user_frames import of_last_run
from dynadiag.model.run import Run
from dynadiag.passes.transitions import CodeObject, Row

_Shapes = Mapping[str, Mapping[str, tuple[int, ...]]]


def static_parameter(row: Row, code: CodeObject, run: Run) -> str | None:
    """The parameter that keeps this size static: itself, or one with the same size in each compilation; None where there is none.

    Established: what is compared with a static size becomes one, and both went through the same sizes, more than one.
    """
    named = dimension(row.source) if row.kind == "size" and row.dynamic_since is None else None
    if named is None:
        return None
    tensor, index = named
    parameters, others = _shapes(run)
    met = [
        (parameters.get(frame.id, {}), others.get(frame.id, {})) for frame in code.frames if frame.id in parameters or frame.id in others
    ]
    if any(tensor in held for held, _ in met):
        return tensor
    sizes = [given[tensor][index] if tensor in given and index < len(given[tensor]) else None for _, given in met]
    if None in sizes or len(set(sizes)) < 2:
        return None
    names = dict.fromkeys(name for held, _ in met for name in held)
    return next(
        (
            name
            for name in names
            if all(name in held for held, _ in met)
            and any(
                all(at < len(held[name]) and held[name][at] == size for (held, _), size in zip(met, sizes, strict=True)) for at in range(8)
            )
        ),
        None,
    )


@of_last_run
def _shapes(run: Run) -> tuple[_Shapes, _Shapes]:
    """By frame the shapes of the parameters that it was given, and those of all other tensors, by their readable names."""
    found: tuple[dict[str, dict[str, tuple[int, ...]]], dict[str, dict[str, tuple[int, ...]]]] = ({}, {})
    for traced_input in run.traced_inputs:
        if traced_input.shape is not None:
            found[0 if traced_input.is_parameter else 1].setdefault(traced_input.frame, {})[readable(traced_input.source)] = (
                traced_input.shape
            )
    return found
