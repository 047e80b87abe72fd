"""One run of a candidate without the compiler, keeping the value of every node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.fx import Interpreter, Node

from dynadiag.capture.reach import strided_copy
from dynadiag.reduce.graphs.candidate import Candidate
from dynadiag.reduce.graphs.inputs import Input, TensorInput, make_values
from dynadiag.reduce.graphs.memory import overlaps_itself
from dynadiag.torch_compat.dispatch.state import why_it_cannot_run
from dynadiag.torch_compat.pytree import tree_map_only


class _Keeping(Interpreter):
    """Keeps each value as it was when it was made; with `copies` even when a later operator writes into it."""

    def __init__(self, module: Any, *, copies: bool) -> None:
        super().__init__(module, garbage_collect_values=False)
        self.values: dict[str, Any] = {}
        self.versions: dict[str, int] = {}
        self._copies = copies

    def run_node(self, n: Node) -> Any:
        result = super().run_node(n)
        self.values[n.name] = tree_map_only(torch.Tensor, _copied, result) if self._copies else result
        if isinstance(result, torch.Tensor):
            self.versions[n.name] = _version(result)
        return result


def eager_values(candidate: Candidate, *, grad: bool = True) -> Mapping[str, Any]:
    """The value of each node by its name. Raises whatever the graph raises.

    Gradients are recorded as in the graph, so that a value that becomes an input still says whether it needs one; without `grad` none does,
    as under `torch.no_grad` (an input that needed one could not be written in place).
    """
    values, written = _run(candidate, copies=False, grad=grad)
    return _run(candidate, copies=True, grad=grad)[0] if written else values


def _run(candidate: Candidate, *, copies: bool, grad: bool) -> tuple[dict[str, Any], bool]:
    from dynadiag.torch_compat.dispatch.state import kept_global_state

    interpreter = _Keeping(candidate.module, copies=copies)
    with kept_global_state(), torch.set_grad_enabled(grad):
        inputs = make_values(candidate.inputs)
        torch.default_generator.manual_seed(0)  # as in the calls of the questions: else each process would find other values
        interpreter.run(*inputs)
    values = interpreter.values
    written = any(_version(values[name]) != version for name, version in interpreter.versions.items()) if not copies else False
    return values, written


def _version(tensor: torch.Tensor) -> int:
    return -1 if tensor.is_inference() else tensor._version


def _copied(tensor: torch.Tensor) -> torch.Tensor:
    dense = tensor.layout is not torch.strided or overlaps_itself(tuple(tensor.shape), tuple(tensor.stride()))
    copy: torch.Tensor = tensor.detach().clone() if dense else strided_copy(tensor)
    return copy.requires_grad_(tensor.requires_grad)


def impossible(candidate: Candidate) -> str | None:
    """Why the candidate cannot run on tensors without data. Fake tensors of a GPU may initialise it: not for who forks later."""
    reasons = (why_it_cannot_run(candidate.module, [_layout(input_) for input_ in call.inputs]) for call in candidate.calls)
    return next(filter(None, reasons), None)


def _layout(tensor_input: Input) -> Any:
    return (
        (tensor_input.shape, tensor_input.stride, tensor_input.dtype, tensor_input.device, tensor_input.requires_grad)
        if isinstance(tensor_input, TensorInput)
        else tensor_input.value
    )
