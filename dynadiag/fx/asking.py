"""AOTAutograd asked whether it takes a graph, where a mutation is of a kind that it may refuse; its answer is quoted."""

from __future__ import annotations

import contextlib
import io
import warnings

import torch

from dynadiag.fx.inputs import FILLINGS, InputSpec
from dynadiag.fx.mutation_probe import lifted_specs
from dynadiag.fx.mutation_records import ProbeResult
from dynadiag.fx.rebuild import Rebuilt
from dynadiag.fx.running import missing_device
from dynadiag.torch_compat.aot.asked import aot_refusal
from dynadiag.torch_compat.dispatch.process_groups import fake_process_groups
from dynadiag.torch_compat.dispatch.state import kept_global_state

_LARGEST_BYTES = 64 * 1024 * 1024


def may_refuse(rebuilt: Rebuilt, result: ProbeResult) -> bool:
    """Whether a mutation is of a kind that AOTAutograd refuses for some inputs: replaced memory, shared memory, overlap within a tensor."""
    specs = lifted_specs(rebuilt)
    return any(one.where == "rejected" or one.aliases or _overlaps_itself(specs[one.index]) for one in result.mutations)


def refusal_of(rebuilt: Rebuilt) -> str | None:
    """The error that AOTAutograd of this torch raises for the graph and inputs like the recorded ones; None when it takes them."""
    if rebuilt.input_bytes > _LARGEST_BYTES or missing_device(rebuilt) is not None:
        return None
    quiet = contextlib.redirect_stderr(io.StringIO())
    grad = torch.set_grad_enabled(rebuilt.grad is not False)
    with fake_process_groups(rebuilt.groups), kept_global_state(), quiet, warnings.catch_warnings(), grad:
        warnings.simplefilter("ignore")
        return aot_refusal(rebuilt.graph_module, rebuilt.example_inputs(FILLINGS[0]))


def _overlaps_itself(spec: InputSpec) -> bool:
    return any(step == 0 and size > 1 for step, size in zip(spec.stride or (), spec.shape or (), strict=False))
