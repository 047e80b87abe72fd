"""The rounding inside an uncompiled run: how coarse it is, and more of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from dynadiag.torch_compat.pytree import tree_leaves, tree_map

_MOST_TERMS = 4096
# Operators whose float32 products cuBLAS may compute in TF32; those of cuDNN (convolutions, recurrent layers) go by their names.
_PRODUCTS = frozenset(("mm", "addmm", "bmm", "baddbmm", "addbmm", "_scaled_dot_product_efficient_attention"))
# What they only add, and what they write to.
_NO_FACTORS = frozenset(("bias", "bias_opt", "attn_bias", "out"))
_TF32_EPS = 2.0**-10


class CoarsestRounding(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """`eps` is the largest `torch.finfo(dtype).eps` of the operations run under it, at most that of bfloat16; 0.0 without any. `half`
    is the dtype of two bytes that has it, None if all are wider. `tf32` says whether a product of float32 may have been computed in TF32.

    Autocast and casts inside a step show only there. Eight-bit floats are left out: they are scaled by the program.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.eps = 0.0
        self.half: torch.dtype | None = None
        self.tf32 = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operation and look at the dtypes that it gave."""
        result = func(*args, **(kwargs or {}))
        for value in tree_leaves(result):
            if isinstance(value, torch.Tensor) and value.is_floating_point() and value.element_size() > 1:
                eps = torch.finfo(value.dtype).eps
                if eps > self.eps:
                    self.eps, self.half = eps, value.dtype if value.element_size() == 2 else None
                self.tf32 = self.tf32 or (_on_tf32_device(value) and _may_be_tf32(func.overloadpacket.__name__))
        return result


class NoisySums(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sums and means come out with an error at random: of n terms up to sqrt(n) x 2^-24 of the sum, or mean, of their magnitudes.

    That is what n float32 numbers added up in any order may be off by (N. Higham and T. Mary, A New Approach to Probabilistic Rounding
    Error Analysis, 2019); eager's pairwise sums are far better, so its own distance from float64 does not show it. n counts as 4,096 at
    most. Covered are `sum` and `mean`, the mean that a batch norm keeps and takes away, those that its backward takes away, and the
    gradients of biases and of the weights of norms. Half precision is added up in float32 as well.

    The factors of a product that may be computed in TF32 are off by up to half a rounding of that: whether a kernel does so depends on its
    library and on the sizes, so that eager may add up to zero what compiled code, as right, does not (torch 2.11, ShuffleNet on an H100).
    """

    def __init__(self, seed: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._seed = seed
        self._generators: dict[torch.device, torch.Generator] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operation; add the error, in place, to what it has added up."""
        result = self._product(func, args, kwargs or {}) if _may_be_tf32(func.overloadpacket.__name__) else func(*args, **(kwargs or {}))
        named = {**{item.name: value for item, value in zip(func._schema.arguments, args, strict=False)}, **(kwargs or {})}
        if _keeps_means(named, result):
            self._off_means(named, result)
        if _is_norm_backward(func, named, result):
            self._off_gradient(named, result[0])
        for total, terms, over in _totals(func, named, result):
            if total.is_floating_point() and total.dtype is not torch.float64:
                total.add_((self._noise(total, terms) * over(terms.abs())).to(total.dtype))
        return result

    def _product(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """What it gives for factors that are off by a rounding of TF32, where they are such that a GPU may take it."""
        unchanged = {*_NO_FACTORS, *(("self",) if "add" in func.overloadpacket.__name__ else ())}
        names = [argument.name for argument in func._schema.arguments]

        def off(value: Any) -> Any:
            if not (isinstance(value, torch.Tensor) and _on_tf32_device(value)):
                return value
            return value * (1 + self._uniform(value.shape, value.device).sub_(0.5).mul_(_TF32_EPS))

        changed = [value if name in unchanged else tree_map(off, value) for name, value in zip(names, args, strict=False)]
        return func(*changed, **{name: value if name in unchanged else tree_map(off, value) for name, value in kwargs.items()})

    def _off_means(self, named: Mapping[str, Any], result: Sequence[Any]) -> None:
        """A batch norm in training: the mean that it keeps, and takes away from its input, is off."""
        output, mean, inverse = result[:3]
        if mean.dtype is torch.float64:
            return
        error = self._noise(mean, named["input"]) * (mean.abs() + 1.0 / inverse)
        mean.add_(error)
        named["running_mean"].add_(error, alpha=named.get("momentum", named.get("exponential_average_factor")))
        scale = inverse if named.get("weight") is None else inverse * named["weight"]
        output.sub_((error * scale).to(output.dtype).reshape(1, -1, *[1] * (output.dim() - 2)))

    def _off_gradient(self, named: Mapping[str, Any], gradient: torch.Tensor) -> None:
        """A batch norm in training: the two means that its backward takes away from the gradient are off.

        Of the norm's plain sum that gradient is zero in exact arithmetic, and whatever a backward has there is rounding (torch 2.11, 2.15).
        """
        given, values = named.get("grad_out", named.get("grad_output")).float(), named["input"].float()
        over = [at for at in range(values.dim()) if at != 1]
        variance, mean = torch.var_mean(values, over, correction=0, keepdim=True)
        inverse = (variance + named.get("eps", named.get("epsilon"))).rsqrt()
        normal = (values - mean) * inverse
        error, tilt = (self._noise(mean, terms) * terms.abs().mean(over, keepdim=True) for terms in (given, given * normal))
        weight = named.get("weight")
        scale = inverse if weight is None else inverse * weight.reshape(mean.shape)
        gradient.sub_((scale * (error + normal * tilt)).to(gradient.dtype))

    def _noise(self, total: torch.Tensor, terms: torch.Tensor) -> torch.Tensor:
        most = torch.finfo(torch.float32).eps * min(terms.numel() / max(1, total.numel()), _MOST_TERMS) ** 0.5
        return self._uniform(total.shape, total.device).sub_(0.5).mul_(most)

    def _uniform(self, shape: Sequence[int], device: torch.device) -> torch.Tensor:
        generator = self._generators.setdefault(device, torch.Generator(device).manual_seed(self._seed))
        return torch.rand(shape, generator=generator, device=device)


class NoisyRounding(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Each value that an operation computes is off by up to half a rounding of its dtype, one of a product of matrices by sqrt(n) of them.

    So other kernels, as right, may round. Views, writes in place, copies and what is made of no tensor stay as they are.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._seed = seed
        self._generators: dict[torch.device, torch.Generator] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operation, and change what it computed."""
        result = func(*args, **(kwargs or {}))
        schema, name = func._schema, func.overloadpacket.__name__
        given = [value for value in tree_leaves((args, kwargs)) if isinstance(value, torch.Tensor) and value.is_floating_point()]
        if not given or name in _EXACT or schema.is_mutable or any(item.alias_info is not None for item in schema.returns):
            return result
        terms = _terms(name, given)
        for value in tree_leaves(result):
            if isinstance(value, torch.Tensor) and value.is_floating_point() and value.layout is torch.strided:
                generator = self._generators.setdefault(value.device, torch.Generator(value.device).manual_seed(self._seed))
                off = torch.rand(value.shape, generator=generator, device=value.device).sub_(0.5)
                value.copy_(value * (1 + off.to(_wider_than(value.dtype)) * torch.finfo(value.dtype).eps * terms**0.5))
        return result


def begin_noise(seed: int, *, rounds: bool) -> None:
    """From now on sums are off at random in this process; with `rounds` every value besides."""
    NoisySums(seed).__enter__()  # type: ignore[no-untyped-call]
    if rounds:
        NoisyRounding(seed).__enter__()  # type: ignore[no-untyped-call]


# They copy values, or choose among them.
_EXACT = frozenset(
    ("clone", "_to_copy", "cat", "stack", "where", "relu", "neg", "abs", "max", "amax", "gather", "index_select", "embedding")
)


def _wider_than(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which a rounding of this one can be added."""
    return torch.float32 if dtype.itemsize < 4 else torch.float64


def _terms(operator: str, given: Sequence[torch.Tensor]) -> int:
    """How many terms a product of matrices adds up in float32 for one value; 1 of other operations, and where the dtype is coarser."""
    weight = given[-1]
    if weight.dtype.itemsize < 4 or weight.dim() < 2:
        return 1
    if operator in _PRODUCTS:
        return min(weight.shape[-2], _MOST_TERMS)
    return min(weight[0].numel(), _MOST_TERMS) if "convolution" in operator else 1


def uses_tf32(*, convolution: bool) -> bool:
    """Whether float32 products on CUDA may be computed in TF32: convolutions may by default, products of matrices may not.

    `allow_tf32` raises where a program has set `fp32_precision` instead (`aten/src/ATen/Context.cpp`, 2.9 to 2.15).
    """
    part: Any = torch.backends.cudnn if convolution else torch.backends.cuda.matmul
    precision = getattr(getattr(part, "conv", None) if convolution else part, "fp32_precision", None)
    return bool(part.allow_tf32) if precision is None else precision == "tf32"


def _on_tf32_device(value: torch.Tensor) -> bool:
    return value.is_cuda and value.dtype is torch.float32


def _may_be_tf32(operator: str) -> bool:
    by_cudnn = "convolution" in operator or "rnn" in operator
    return (by_cudnn or operator in _PRODUCTS) and uses_tf32(convolution=by_cudnn)


def _totals(func: Any, named: Mapping[str, Any], result: Any) -> Iterator[tuple[torch.Tensor, torch.Tensor, Callable[..., torch.Tensor]]]:
    """What an operation has added up, its terms, and how to add up such terms; the names are those of torch's schemas (2.11 to 2.15)."""
    operator = func.overloadpacket
    if operator in (torch.ops.aten.sum, torch.ops.aten.mean) and "out" not in named and named["self"].is_floating_point():
        yield result, named["self"], lambda terms: func(**{**named, "self": terms})
    elif str(operator).endswith(("norm_backward", "convolution_backward")):
        gradient = named.get("grad_out", named.get("grad_output"))
        in_front = str(operator).endswith(("layer_norm_backward", "rms_norm_backward"))
        # Of a convolution's weight the gradient is no plain sum.
        for total in result[2 if operator is torch.ops.aten.convolution_backward else 1 :]:
            if isinstance(total, torch.Tensor) and gradient is not None:
                yield total, gradient, partial(_summed, sizes=total.dim() if in_front else None)


def _keeps_means(named: Mapping[str, Any], result: Any) -> bool:
    """Whether it is a batch norm in training with running means, on whatever library."""
    keeps = named.get("running_mean") is not None and named.get("training", named.get("train", True)) and "save_mean" not in named
    return keeps and isinstance(result, tuple) and len(result) > 2 and result[1].shape == named["running_mean"].shape


def _is_norm_backward(func: Any, named: Mapping[str, Any], result: Any) -> bool:
    """Whether it is the backward of a batch norm in training whose input's gradient is wanted, on whatever library."""
    if not str(func.overloadpacket).endswith("batch_norm_backward") or not named.get("train", named.get("update", True)):
        return False
    return isinstance(result[0], torch.Tensor) and result[0].dtype is not torch.float64


def _summed(terms: torch.Tensor, *, sizes: int | None) -> torch.Tensor:
    """Over the dimensions in front of the last `sizes`; None: over all but the channels, which are the second dimension."""
    over = [at for at in range(terms.dim()) if at != 1] if sizes is None else list(range(terms.dim() - sizes))
    return terms.sum(over) if over else terms


def is_convolution(module: Any) -> bool:
    """Whether a module convolves, transposed or not (`torch/nn/modules/conv.py`, 2.11 to 2.15)."""
    return isinstance(module, torch.nn.modules.conv._ConvNd)
