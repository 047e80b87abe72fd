"""What torch tells about the rounding inside an uncompiled run."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class CoarsestRounding(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """`eps` is the largest `torch.finfo(dtype).eps` of the operations run under it, at most that of bfloat16; 0.0 without any.

    Autocast and casts inside a step show only there. Eight-bit floats are left out: they are scaled by the program.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.eps = 0.0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operation and look at the dtypes that it gave."""
        result = func(*args, **(kwargs or {}))
        for value in tree_leaves(result):
            if isinstance(value, torch.Tensor) and value.is_floating_point() and value.element_size() > 1:
                self.eps = max(self.eps, torch.finfo(value.dtype).eps)
        return result
