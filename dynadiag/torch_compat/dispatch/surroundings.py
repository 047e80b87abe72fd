"""What was in force around a graph when it was captured, for a call of it, and everything as before afterwards."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from dynadiag.torch_compat.dispatch.process_groups import fake_process_groups
from dynadiag.torch_compat.dispatch.state import kept_global_state


@contextlib.contextmanager
def surroundings(
    groups: Mapping[str, int],
    *,
    grad: bool | None = None,
    inference: bool = False,
    autocast: tuple[str, Any] | None = None,
) -> Iterator[None]:
    """Process groups, grad or inference mode and autocast (device and dtype); grad None leaves that mode as it is. Warnings are ignored."""
    with kept_global_state(), fake_process_groups(groups), warnings.catch_warnings(), contextlib.ExitStack() as stack:
        warnings.simplefilter("ignore")
        if autocast is not None:
            stack.enter_context(torch.autocast(autocast[0], dtype=autocast[1]))
        if inference:
            stack.enter_context(torch.inference_mode())
        else:
            stack.enter_context(torch.set_grad_enabled(torch.is_grad_enabled() if grad is None else grad))
        yield


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without stderr: FX prints the generated code there when a sub graph raises (torch/fx/graph_module.py `_WrappedCall`)."""
    with contextlib.redirect_stderr(io.StringIO()):
        yield
