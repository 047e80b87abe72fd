"""Whether a graph can run at all, found with tensors that have no data: shapes, dtypes and devices that do not fit are seen at once."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Sequence
from typing import Any

import torch

from dynadiag.torch_compat.fx_state import kept_global_state

Layout = tuple[tuple[int, ...], tuple[int, ...], torch.dtype, str, bool]


def why_it_cannot_run(module: torch.fx.GraphModule, inputs: Sequence[Layout | Any]) -> str | None:
    """The error of a run on fake tensors, in one line; None when it runs, or when fake tensors cannot tell.

    An input is its layout (shape, stride, dtype, device, requires_grad), or the value itself when it is no tensor.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode

    quiet = contextlib.redirect_stderr(io.StringIO())
    fake = FakeTensorMode(allow_non_fake_inputs=True)
    with quiet, kept_global_state(), warnings.catch_warnings(), fake, torch.enable_grad():
        warnings.simplefilter("ignore")
        try:
            module.forward(*[_fake(one) for one in inputs])
        except Exception as error:  # noqa: BLE001 - the border around a candidate
            return None if _cannot_tell(error) else f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error) else ''}"
    return None


def _fake(one: Layout | Any) -> Any:
    if not (isinstance(one, tuple) and len(one) == 5 and isinstance(one[2], torch.dtype)):
        return one
    shape, stride, dtype, device, requires_grad = one
    made = torch.empty_strided(shape, stride, dtype=dtype, device=device)
    return made.requires_grad_() if requires_grad else made


def _cannot_tell(error: Exception) -> bool:
    """Errors of fake tensors themselves: values that decide shapes, operators that have no rule for them."""
    from torch._subclasses import fake_tensor

    names = (
        "DataDependentOutputException",
        "DynamicOutputShapeException",
        "UnsupportedFakeTensorException",
        "UnsupportedOperatorException",
    )
    kinds = tuple(kind for name in names if isinstance(kind := getattr(fake_tensor, name, None), type))
    return isinstance(error, (*kinds, NotImplementedError)) or "FakeTensor" in str(error) or "Dynamo" in type(error).__name__
