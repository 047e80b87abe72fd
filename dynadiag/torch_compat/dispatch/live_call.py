"""Torch's private switches around a repeated call: no modes, no torch functions, no Dynamo, and the random numbers put back."""

from __future__ import annotations

import contextlib
import re
import sys
import types
import warnings
from collections.abc import Iterator
from typing import Any

import torch

from dynadiag.torch_compat.dispatch.own_operators import TORCHS_OWN, library_kernels
from dynadiag.torch_compat.dispatch.state import kept_global_state
from dynadiag.torch_compat.dispatch.writes import declared_writes
from dynadiag.torch_compat.trace.hooks import callback_switch


@contextlib.contextmanager
def aside() -> Iterator[None]:
    """Code in this block changes nothing that the program could see: global state, random numbers, its own modes, Dynamo, warnings."""
    from torch.utils._python_dispatch import _disable_current_modes

    switch = callback_switch()
    prior = switch(None)
    quiet = ("ignore", None, Warning, None, 0)
    warnings.filters.insert(0, quiet)  # type: ignore[attr-defined]
    try:
        with RandomState().kept(), torch._C.DisableTorchFunction(), _disable_current_modes(), kept_global_state(), _own_saved_tensors():
            # Casts of copies must not be kept beside the program's own.
            torch.set_autocast_cache_enabled(False)
            yield
    finally:
        with contextlib.suppress(ValueError):
            warnings.filters.remove(quiet)  # type: ignore[attr-defined]
        switch(prior)


@contextlib.contextmanager
def _own_saved_tensors() -> Iterator[None]:
    """The program's hooks on saved tensors are not called: only the innermost pair is, and that is ours."""
    # Only where there are any: `torch.func` refuses to run under hooks.
    if torch._C._autograd._top_saved_tensors_default_hooks(True) is None:
        yield
        return
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor):
        yield


class RandomState:
    """The default generators of the CPU and of each CUDA device in use, as they were when this was made."""

    def __init__(self) -> None:
        self._cuda = list(range(torch.cuda.device_count())) if _cuda_runs() else []
        self._states = self._now()

    def moved(self) -> bool:
        """Whether random numbers were drawn since this was last asked."""
        now = self._now()
        drawn = any(not torch.equal(tensor, other) for tensor, other in zip(now, self._states))
        self._states = now
        return drawn

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """Set them back afterwards, if any was moved."""
        before = self._states
        try:
            yield
        finally:
            if self.moved():
                torch.set_rng_state(before[0])
                for device, state in zip(self._cuda, before[1:]):
                    torch.cuda.set_rng_state(state, device)

    def set_back(self) -> None:
        """The generators as they were when this was made, whatever was drawn since; nobody may have asked `moved` before."""
        torch.set_rng_state(self._states[0])
        for device, state in zip(self._cuda, self._states[1:]):
            torch.cuda.set_rng_state(state, device)

    def reseed(self, seed: int) -> None:
        """Other random numbers; a device that is not in use stays asleep, which `torch.manual_seed` would not leave it."""
        for generator in (torch.default_generator, *(torch.cuda.default_generators[device] for device in self._cuda)):
            generator.manual_seed(seed)

    def as_bytes(self) -> tuple[bytes, ...]:
        """The states to compare, the CPU's first."""
        return tuple(bytes(state.cpu().numpy()) for state in self._states)

    def _now(self) -> list[torch.Tensor]:
        return [torch.get_rng_state(), *(torch.cuda.get_rng_state(device) for device in self._cuda)]


def _cuda_runs() -> bool:
    return bool(torch.cuda.is_available() and torch.cuda.is_initialized())  # type: ignore[no-untyped-call]


def why_not_now(values: Any) -> str | None:
    """Why this call cannot be repeated: transforms of functorch, CUDA graphs being captured, a profiler; None when it can."""
    if any(isinstance(value, torch.Tensor) and torch._C._functorch.is_functorch_wrapped_tensor(value) for value in values):
        return "its inputs belong to a torch.func transform"
    if _cuda_runs() and torch.cuda.is_current_stream_capturing():
        return "a CUDA graph is being captured"
    if torch._C._autograd._profiler_enabled():
        return "a profiler is running, whose figures would change"
    return None


def python_kernels(name: str) -> list[Any]:
    """The Python functions of an operator: of `custom_op` (`OPDEFS` in `torch._library.custom_ops`, 2.11 to 2.15), or of a library."""
    custom_ops = sys.modules.get("torch._library.custom_ops")
    definition = getattr(custom_ops, "OPDEFS", {}).get(name)
    if definition is None:
        return library_kernels(name)
    functions = list(getattr(definition, "_backend_fns", {}).values())
    return [getattr(definition, "_init_fn", None), *functions]


def operator_names(target: Any) -> list[str]:
    """The qualified name ("lib::scale") of an operator as a graph calls it; empty for other functions."""
    if isinstance(target, torch._ops.OpOverload):
        return [target._schema.name]
    if isinstance(target, torch._ops.OpOverloadPacket):
        return [target._qualified_op_name]
    return []


def is_public(node: torch.fx.Node) -> bool:
    """Whether an eager program calls it in the same way: an operator or a function of Python or torch, none of Dynamo's own."""
    target = node.target
    if node.op == "call_method" or isinstance(target, (types.BuiltinFunctionType, types.MethodDescriptorType, torch._ops.OpOverload)):
        return True
    module = getattr(target, "__module__", None) or ""
    return node.op == "call_function" and isinstance(target, types.FunctionType) and not re.search(r"(^|\.)_", module)


def is_higher_order(target: Any) -> bool:
    """Whether it is an operator that runs other graphs or Python objects."""
    return isinstance(target, torch._ops.HigherOrderOperator)


def is_triton(target: Any) -> bool:
    """Whether it launches a user-defined Triton kernel, whose writes torch finds in its code, not in a schema."""
    return is_higher_order(target) and str(getattr(target, "_name", "")).startswith("triton_kernel_wrapper")


def is_no_error(error: BaseException) -> bool:
    """Whether it only stops early what activation checkpointing computes again (`torch/utils/checkpoint.py`)."""
    return type(error).__name__ == "_StopRecomputationError" and type(error).__module__ == "torch.utils.checkpoint"


def operator_schema(target: Any) -> Any:
    """The schema of an operator, of a packet its first; None for other functions."""
    if isinstance(target, torch._ops.OpOverloadPacket):
        target = getattr(target, target.overloads()[0])  # type: ignore[no-untyped-call]
    return target._schema if isinstance(target, torch._ops.OpOverload) else None


def is_torchs_own(target: Any) -> bool:
    """Whether it is a function or a method of torch: of those not all say what they write (a batch norm's means, 2.6 to 2.15)."""
    if isinstance(target, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        return str(target).split(".")[0] in TORCHS_OWN
    function = isinstance(target, (types.FunctionType, types.BuiltinFunctionType))
    return isinstance(target, str) or (function and (target.__module__ or "").split(".")[0] == "torch")


def declares_writes(target: Any) -> bool:
    """Whether it may write what it is given: any function but an operator of the program without such an argument in its schema."""
    schema = operator_schema(target)
    return schema is None or schema.name.split("::")[0] in TORCHS_OWN or bool(declared_writes(schema))
