"""The reduction passes for scripts, each a function from a program to simpler ones. The order is that of use."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from dynadiag.reduce.scripts.passes.arguments import drop_parameters, freezing_arguments
from dynadiag.reduce.scripts.passes.definitions import eager_backend, identity_modules, plain_definitions
from dynadiag.reduce.scripts.passes.direct_calls import direct_calls
from dynadiag.reduce.scripts.passes.names import hoist_expressions, inline_functions, inline_names
from dynadiag.reduce.scripts.passes.statements import drop_parts, executing_only, unwrap_blocks
from dynadiag.reduce.scripts.passes.values import few_repeats, parameter_values, plain_tensors, plain_values, small_constants
from dynadiag.reduce.scripts.program import FactsOf, Program

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
