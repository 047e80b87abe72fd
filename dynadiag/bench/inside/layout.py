"""What a caller can see of an output beside its values: its strides, and whether it shares memory with what the step was given.

`view` and writes into an output rest on both. A difference is noted and is not WRONG: inductor itself gives other strides for `lerp` and
`one_hot`, and its input for `x + 0` (2.15; 4 of 146 small functions), in spite of `torch._inductor.config.keep_output_stride`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

_STRIDES, _MEMORY = "strides of ", "memory of "


def layout_of(outputs: Mapping[str, Any], given: Iterable[Any]) -> dict[str, Any]:
    """The strides of each output (0 where the size is 1 or 0: none can be seen), and 1 where its storage is that of a tensor in `given`."""
    import torch

    known = {storage_of(tensor) for tensor in given} - {None}
    found = {}
    for name, tensor in outputs.items():
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.layout != torch.strided:
            continue
        seen = [step if size > 1 and tensor.numel() else 0 for size, step in zip(tensor.shape, tensor.stride(), strict=True)]
        found[f"{_STRIDES}{name}"] = torch.tensor(seen, dtype=torch.int64, device="cpu")
        found[f"{_MEMORY}{name}"] = torch.tensor([int(storage_of(tensor) in known)], dtype=torch.int64, device="cpu")
    return found


def is_layout(name: str) -> bool:
    """Whether a result by that name is one of `layout_of`."""
    return name.startswith((_STRIDES, _MEMORY))


def other_layouts(eager: Mapping[str, Any], result: Mapping[str, Any]) -> str:
    """How the layout of the first output that differs from eager's does, and how many more differ, in one line; empty when none does."""
    found = [name for name in eager if is_layout(name) and name in result and not eager[name].equal(result[name])]
    if not found:
        return ""
    more = f" (and {len(found) - 1} more of this kind)" if len(found) > 1 else ""
    how = _how_it_differs(found[0], eager[found[0]], result[found[0]])
    return f"{found[0]}: {how}{more}; its values are still compared, but a `view` of it, or a write into it, may behave differently"


def _how_it_differs(name: str, eager: Any, other: Any) -> str:
    if name.startswith(_STRIDES):
        return f"{tuple(eager.tolist())} in eager, {tuple(other.tolist())} here"
    shared = "shares memory with a tensor passed to the step"
    return f"it {shared} in eager, but not here" if int(eager) else f"it {shared}, but not in eager"


def storage_of(tensor: Any) -> int | None:
    """The address of a tensor's memory; None for one that has none (sparse, fake, empty)."""
    try:
        return int(tensor.untyped_storage().data_ptr()) or None
    except (RuntimeError, NotImplementedError):
        return None
