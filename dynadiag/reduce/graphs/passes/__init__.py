"""Reduction passes. A pass proposes simpler candidates, the best first; whether one is adopted is not its business.

To add one: a function `Candidate -> Iterator[Candidate]` in the file that has similar ones, and a line below. Proposals that are not
simpler in the order of `Candidate.measure`, or that cannot run, cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from dynadiag.reduce.core.failure import COMPARED, Failure
from dynadiag.reduce.graphs.candidate import Candidate
from dynadiag.reduce.graphs.passes.inputs import contiguous_strides, lower_dtypes, merge_inputs, plain_inputs, simple_data
from dynadiag.reduce.graphs.passes.operators import (
    bypass_operators,
    constants_of_their_class,
    default_arguments,
    drop_outputs,
    simple_constants,
)
from dynadiag.reduce.graphs.passes.shrink_bodies import shrink_bodies
from dynadiag.reduce.graphs.passes.shrink_dimensions import shrink_dimensions
from dynadiag.reduce.graphs.passes.surroundings import drop_configs, fewer_calls

ReductionPass = Callable[[Candidate], Iterator[Candidate]]

ALL_PASSES: tuple[ReductionPass, ...] = (
    fewer_calls,
    simple_data,
    bypass_operators,
    shrink_bodies,
    drop_configs,
    merge_inputs,
    drop_outputs,
    shrink_dimensions,
    default_arguments,
    plain_inputs,
    contiguous_strides,
    lower_dtypes,
    simple_constants,
)


def passes_for(failure: Failure) -> tuple[ReductionPass, ...]:
    """The passes for a failure. Of wrong numbers nothing but their kind is known: `+ 1` may be wrong for another reason than `+ 0`."""
    kept = tuple(reduction for reduction in ALL_PASSES if reduction is not simple_constants)
    return (*kept, constants_of_their_class) if failure.kind in COMPARED else ALL_PASSES
