"""Which sizes of a compiled function's tensors were not the same in all calls that it was compiled for."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from dynadiag.facts.guard_sources import readable
from dynadiag.model.run import Frame, Run
from dynadiag.passes.transitions import Row

# By frame the shape of each tensor that is no parameter, by its readable source.
Shapes = Mapping[str, Mapping[str, tuple[int, ...]]]
# A view's base is no tensor of the program, nor is what torch made while it traced.
_NOT_PASSED = re.compile(r"\._base\b|^__meta_utils")


def input_shapes(run: Run) -> Shapes:
    """The shapes of all tensors that Dynamo met, in the call that each frame was compiled for."""
    found: dict[str, dict[str, tuple[int, ...]]] = {}
    for one in run.traced_inputs:
        source = readable(one.source)
        if not one.is_parameter and one.shape is not None and not _NOT_PASSED.search(source):
            found.setdefault(one.frame, {})[source] = one.shape
    return found


def varying_sizes(frames: Sequence[Frame], rows: Sequence[Row], shapes: Shapes) -> tuple[tuple[str, int], ...]:
    """The tensors and dimensions whose sizes differ between the calls; empty where marking them would not make all of them dynamic.

    That is so where one of them was 0 or 1 in the first call (a later one has its own version, marked or not), or a constant to torch, and
    where a tensor was not there in the first call, or with another number of dimensions: a size that was marked is tied to one that was
    not then.
    """
    met = [shapes[frame.id] for frame in frames if frame.id in shapes]
    if not met or frames[0].id not in shapes or any(row.kind == "size" and row.dynamic_since is None for row in rows):
        return ()
    first, found = met[0], dict.fromkeys(source for one in met for source in one)
    varying: list[tuple[str, int]] = []
    for source in found:
        seen = [one[source] for one in met if source in one]
        if source not in first or len({len(shape) for shape in seen}) > 1:
            return ()
        varying += [(source, index) for index, sizes in enumerate(zip(*seen, strict=False)) if len(set(sizes)) > 1]
    return () if any(first[source][index] in (0, 1) for source, index in varying) else tuple(varying)
