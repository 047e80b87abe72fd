"""The reduction passes for scripts, one a file: a function from a program to simpler ones. The order is that of use."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from dynadiag.reduce.scripts.facts import FactsOf
from dynadiag.reduce.scripts.passes.direct_calls import direct_calls
from dynadiag.reduce.scripts.passes.drop_parameters import drop_parameters
from dynadiag.reduce.scripts.passes.drop_parts import drop_parts
from dynadiag.reduce.scripts.passes.eager_backend import eager_backend
from dynadiag.reduce.scripts.passes.executed_only import executing_only
from dynadiag.reduce.scripts.passes.few_repeats import few_repeats
from dynadiag.reduce.scripts.passes.freeze_arguments import freezing_arguments
from dynadiag.reduce.scripts.passes.hoist_expressions import hoist_expressions
from dynadiag.reduce.scripts.passes.identity_modules import identity_modules
from dynadiag.reduce.scripts.passes.inline_names import inline_functions, inline_names
from dynadiag.reduce.scripts.passes.known_values import plain_values
from dynadiag.reduce.scripts.passes.parameter_values import parameter_values
from dynadiag.reduce.scripts.passes.plain_definitions import plain_definitions
from dynadiag.reduce.scripts.passes.plain_tensors import plain_tensors
from dynadiag.reduce.scripts.passes.small_constants import small_constants
from dynadiag.reduce.scripts.passes.unwrap_blocks import unwrap_blocks
from dynadiag.reduce.scripts.program import Program

ScriptPass = Callable[[Program], Iterator[Program]]


def passes_before_cutting(facts_of: FactsOf, namespace: Mapping[str, object] | None, *, one_call: bool = True) -> tuple[ScriptPass, ...]:
    """They make questions cheap: no back end, nothing that does not run, few layers and steps, no model where a tensor will do.

    `namespace` is what the command line gave; with `one_call` a single call may show what is looked for.
    """
    first = () if namespace is None else (freezing_arguments(namespace),)
    direct = (direct_calls(facts_of),) if one_call else ()
    straight = (executing_only(facts_of), inline_functions, *direct)
    return (eager_backend, *first, *straight, parameter_values, few_repeats, plain_values(facts_of), plain_tensors, inline_functions)


ALL_PASSES: tuple[ScriptPass, ...] = (
    eager_backend,
    unwrap_blocks,
    inline_functions,
    plain_definitions,
    identity_modules,
    drop_parts,
    plain_tensors,
    hoist_expressions,
    drop_parameters,
    small_constants,
    inline_names,
)
