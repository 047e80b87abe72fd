"""Inputs of a candidate as recipes: real data, or how to make the tensor again in one readable line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch

from dynadiag.fx.inputs import computed
from dynadiag.reduce.graphs.memory import View, overlaps_itself

Fill = Literal["data", "random", "ones", "zeros"]
SEED = 0
HOME = "dynadiag_home"
"""Attribute of a tensor that was loaded onto the CPU: the device where it lived."""
COMPUTED = "dynadiag_computed"
"""Attribute of a loaded tensor that needs a gradient: it was no leaf of the autograd graph."""
_FILL_RANK = {"zeros": 0, "ones": 1, "random": 2, "data": 3}


@dataclass(frozen=True, kw_only=True, eq=False)
class TensorInput:
    """A tensor. With `fill` "data" its values are those of `data`, whose memory other inputs may share; `token` names those values.

    "random" is `torch.randn` (integers: `torch.randint(high)`), drawn in the order of the inputs after one `torch.manual_seed`. Without
    `leaf` it needs a gradient and was computed from something.
    """

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: str
    requires_grad: bool
    fill: Fill
    token: str = ""
    data: torch.Tensor | None = None
    high: int = 2
    leaf: bool = True

    @property
    def contiguous(self) -> bool:
        """Whether the strides are the usual ones."""
        return self.stride == contiguous_stride(self.shape)

    @property
    def overlaps_itself(self) -> bool:
        """Whether elements may share memory: then it is made as a view of `memory()`."""
        return overlaps_itself(self.shape, self.stride)

    def memory(self) -> TensorInput:
        """All that it lies in, from its first element on, as one row."""
        row = (View(self.shape, self.stride).end,)
        if self.data is None:
            return replace(self, shape=row, stride=(1,))
        return self.with_data(self.data.as_strided(row, (1,)), f"{self.token} row")

    def key(self) -> str:
        """What distinguishes this input from others."""
        values = f"data {self.token}" if self.fill == "data" else f"{self.fill} {self.high if self.fill == 'random' else ''}"
        return f"{self.shape} {self.stride} {self.dtype} {self.device} {self.requires_grad} {values}{'' if self.leaf else ' computed'}"

    def layout(self) -> str:
        """What distinguishes this kind of input from others, without its data: where it begins in its memory counts."""
        offset = self.data.storage_offset() if self.data is not None else 0
        return f"{self.shape} {self.stride} {offset} {self.dtype} {self.device} {self.requires_grad} {self.leaf}"

    def with_data(self, data: torch.Tensor, token: str) -> TensorInput:
        """The same kind of input with other values, shape and strides."""
        return replace(self, data=data, token=token, shape=tuple(data.shape), stride=tuple(data.stride()), dtype=data.dtype, fill="data")

    def rank(self) -> tuple[int, ...]:
        """How complicated the values are; less is simpler."""
        return (_FILL_RANK[self.fill], self.high if self.fill == "random" else 0)


@dataclass(frozen=True, kw_only=True, eq=False)
class PlainInput:
    """Anything that is no tensor: a number, a string, None; other objects only inside one process."""

    value: Any

    def key(self) -> str:
        """What distinguishes this input from others."""
        return f"{type(self.value).__name__} {self.value!r}"

    def layout(self) -> str:
        """The same: a number may decide what is compiled."""
        return self.key()


Input = TensorInput | PlainInput


def contiguous_stride(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a contiguous tensor, as torch computes them."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def from_value(value: Any, token: str, *, as_leaf: bool = False) -> Input:
    """The recipe that holds a real value; the tensor itself is kept, not copied. Tensors without strides are kept as plain objects.

    With `as_leaf` a tensor that was computed becomes a leaf.
    """
    if type(value) not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer) or value.layout is not torch.strided or value.is_quantized:
        return PlainInput(value=value)
    plain = value.detach().resolve_conj().resolve_neg()  # such a view is read as bytes later
    return TensorInput(
        shape=tuple(plain.shape),
        stride=tuple(plain.stride()),
        dtype=plain.dtype,
        device=getattr(value, HOME, str(plain.device)),
        requires_grad=value.requires_grad,
        fill="data",
        token=token,
        data=plain,
        leaf=as_leaf or not value.requires_grad or (value.is_leaf and not hasattr(value, COMPUTED)),
    )


def make_values(inputs: Sequence[Input], *, seed: int = SEED, spend: bool = False) -> list[Any]:
    """Fresh values for one call; tensors that shared memory share it again. The RNG of the process stays as it was.

    A default device of the caller changes nothing: each input names its own. With `spend` large memory is not copied but handed out, since
    the process ends after this call.
    """
    storages: Storages = {}
    with torch.random.fork_rng(devices=[]), torch.no_grad(), torch.device("cpu"):
        torch.manual_seed(seed)
        made = [_make(input_, storages, spend) for input_ in inputs]
    return [_with_grad(value, tensor_input) for value, tensor_input in zip(made, inputs, strict=True)]


Storages = dict[tuple[int, str], torch.UntypedStorage]
LARGE_BYTES = 64 << 20


def _make(tensor_input: Input, storages: Storages, spend: bool) -> Any:
    if isinstance(tensor_input, PlainInput):
        return tensor_input.value
    if tensor_input.fill == "data":
        assert tensor_input.data is not None
        return _copy(tensor_input.data, tensor_input.device, storages, spend)
    return generate(tensor_input).to(tensor_input.device)


def _copy(data: torch.Tensor, device: str, storages: Storages, spend: bool) -> torch.Tensor:
    """The tensor on its device, in a copy of its memory that is made once: whoever shares the one shares the other."""
    source = data.untyped_storage()
    if not source.data_ptr():
        return data.clone().to(device)
    key = (source.data_ptr(), device)
    if key not in storages:
        whole = torch.empty(0, dtype=torch.uint8, device=data.device).set_(source)
        kept = spend and device == str(data.device) == "cpu" and source.nbytes() >= LARGE_BYTES
        storages[key] = source if kept else whole.to(device, copy=True).untyped_storage()
    return torch.empty(0, dtype=data.dtype, device=device).set_(storages[key], data.storage_offset(), data.shape, data.stride())


def generate(tensor_input: TensorInput) -> torch.Tensor:
    """The tensor of a recipe without data, on the CPU, drawn from the global RNG exactly as the written reproducer does it."""
    if tensor_input.overlaps_itself:
        return _fill(tensor_input.memory()).as_strided(tensor_input.shape, tensor_input.stride)
    made = _fill(tensor_input)
    return (
        made
        if tensor_input.contiguous
        else torch.empty_strided(tensor_input.shape, tensor_input.stride, dtype=tensor_input.dtype).copy_(made)
    )


def _fill(tensor_input: TensorInput) -> torch.Tensor:
    if tensor_input.fill == "zeros":
        return torch.zeros(tensor_input.shape, dtype=tensor_input.dtype)
    if tensor_input.fill == "ones":
        return torch.ones(tensor_input.shape, dtype=tensor_input.dtype)
    if tensor_input.dtype.is_floating_point or tensor_input.dtype.is_complex:
        drawn = torch.randn(tensor_input.shape, dtype=tensor_input.dtype if tensor_input.dtype in DRAWN else torch.float32)
        return drawn if drawn.dtype == tensor_input.dtype else drawn.to(tensor_input.dtype)
    return (
        torch.randint(tensor_input.high, tensor_input.shape, dtype=tensor_input.dtype)
        if tensor_input.dtype != torch.bool
        else torch.randint(2, tensor_input.shape).bool()
    )


DRAWN = (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.complex64, torch.complex128)
"""Dtypes that `torch.randn` makes itself."""


def _with_grad(value: Any, tensor_input: Input) -> Any:
    if not isinstance(tensor_input, TensorInput) or not tensor_input.requires_grad:
        return value
    return value.requires_grad_() if tensor_input.leaf else computed(value)
