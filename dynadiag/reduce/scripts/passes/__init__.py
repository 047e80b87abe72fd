"""The reduction passes for scripts, one a file: a function from a program to simpler ones. The order is that of use."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from dynadiag.reduce.scripts.passes.drop_parameters import drop_parameters
from dynadiag.reduce.scripts.passes.drop_parts import drop_parts
from dynadiag.reduce.scripts.passes.eager_backend import eager_backend
from dynadiag.reduce.scripts.passes.hoist_expressions import hoist_expressions
from dynadiag.reduce.scripts.passes.inline_names import inline_functions, inline_names
from dynadiag.reduce.scripts.passes.plain_definitions import plain_definitions
from dynadiag.reduce.scripts.passes.plain_tensors import plain_tensors
from dynadiag.reduce.scripts.passes.small_constants import small_constants
from dynadiag.reduce.scripts.passes.unwrap_blocks import unwrap_blocks
from dynadiag.reduce.scripts.program import Program

ScriptPass = Callable[[Program], Iterator[Program]]

BEFORE_CUTTING: tuple[ScriptPass, ...] = (eager_backend, plain_tensors)
"""They make questions cheap: no back end, and no model where a tensor will do."""
ALL_PASSES: tuple[ScriptPass, ...] = (
    eager_backend,
    unwrap_blocks,
    inline_functions,
    plain_definitions,
    drop_parts,
    plain_tensors,
    hoist_expressions,
    drop_parameters,
    small_constants,
    inline_names,
)
