"""Reduction passes, one a file. A pass proposes simpler candidates, the best first; whether one is adopted is not its business.

To add one: a file with a function `Candidate -> Iterator[Candidate]`, and a line below. Proposals that are not simpler in the order of
`Candidate.measure`, or that cannot run, cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from dynadiag.reduce.graphs.candidate import Candidate
from dynadiag.reduce.graphs.passes.bypass_operators import bypass_operators
from dynadiag.reduce.graphs.passes.contiguous_strides import contiguous_strides
from dynadiag.reduce.graphs.passes.default_arguments import default_arguments
from dynadiag.reduce.graphs.passes.drop_configs import drop_configs
from dynadiag.reduce.graphs.passes.drop_outputs import drop_outputs
from dynadiag.reduce.graphs.passes.fewer_calls import fewer_calls
from dynadiag.reduce.graphs.passes.lower_dtypes import lower_dtypes
from dynadiag.reduce.graphs.passes.merge_inputs import merge_inputs
from dynadiag.reduce.graphs.passes.plain_inputs import plain_inputs
from dynadiag.reduce.graphs.passes.shrink_bodies import shrink_bodies
from dynadiag.reduce.graphs.passes.shrink_dimensions import shrink_dimensions
from dynadiag.reduce.graphs.passes.simple_constants import simple_constants
from dynadiag.reduce.graphs.passes.simple_data import simple_data

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
