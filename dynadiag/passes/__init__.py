"""Diagnoses: one pass a file, each a pure function from `Run` to `PassResult`."""

from __future__ import annotations

from dynadiag.passes import (
    find_compile_time,
    find_complex_operators,
    find_cuda_graphs,
    find_eager_parts,
    find_failed_exports,
    find_fallbacks,
    find_graph_breaks,
    find_guards,
    find_known_faults,
    find_mutations,
    find_parity,
    find_random_numbers,
    find_rank_differences,
    find_rank_groups,
    find_recompiles,
    find_refused_recompiles,
    find_side_streams,
    find_stale_gradients,
    find_uncaught,
    find_whole_calls,
)
from dynadiag.passes.base import Pass

# Every pass, in the order in which their entries appear in a report.
ALL_PASSES: tuple[Pass, ...] = (
    find_graph_breaks.find_graph_breaks,
    find_fallbacks.find_fallbacks,
    find_eager_parts.find_eager_parts,
    find_complex_operators.find_complex_operators,
    find_uncaught.find_uncaught,
    find_failed_exports.find_failed_exports,
    find_recompiles.find_recompiles,
    find_refused_recompiles.find_refused_recompiles,
    find_guards.find_guards,
    find_compile_time.find_compile_time,
    find_cuda_graphs.find_cuda_graphs,
    find_side_streams.find_side_streams,
    find_mutations.find_mutations,
    find_parity.find_parity,
    find_whole_calls.find_whole_calls,
    find_known_faults.find_known_faults,
    find_random_numbers.find_random_numbers,
    find_stale_gradients.find_stale_gradients,
    find_rank_differences.find_rank_differences,
    find_rank_groups.find_rank_groups,
)
