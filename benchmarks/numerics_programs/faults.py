"""Faults planted in inductor's lowerings, decompositions and C++ text, each in a program where one operator is guilty.

Written before `dynadiag/numerics` was tried on any of them; those of HELD_OUT were not run while it was built. Two of HELD_OUT change no
result, which showed only then (docs/numerics.md): inductor takes `index_put_` for `index_put`, and keeps the sum of the mean in float32.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
from torch._inductor import decomposition, lowering
from torch._inductor.codegen.cpp import CppScheduling

aten: Any = torch.ops.aten
Plant = Callable[[], contextlib.AbstractContextManager[Any]]


@dataclass(frozen=True)
class Fault:
    """`operator` and a piece of the `line` say what is guilty."""

    kind: str
    name: str
    program: Callable[..., Any]
    inputs: Callable[[], tuple[Any, ...]]
    plant: Plant
    operator: str
    line: str


def lowered(operators: Any, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Plant:
    """Another lowering, made of the right one; of several operators where inductor may take one for another (writes in place)."""
    table, some = lowering.lowerings, operators if isinstance(operators, tuple) else (operators,)
    return lambda: mock.patch.dict(table, {operator: make(table[operator]) for operator in some})


def decomposed(operator: Any, make: Callable[[Any], Callable[..., Any]]) -> Plant:
    """Another decomposition, made of the right one."""

    @contextlib.contextmanager
    def plant() -> Iterator[None]:
        table = decomposition.decompositions
        with mock.patch.dict(table, {operator: make(table.get(operator))}):
            decomposition.fast_random_decomps.cache_clear()
            yield
        decomposition.fast_random_decomps.cache_clear()

    return plant


def written(pattern: str, replacement: str, *, last: bool = False) -> Plant:
    """Another text of C++ kernels."""

    @contextlib.contextmanager
    def plant() -> Iterator[None]:
        original = CppScheduling.define_kernel

        def define_kernel(self: Any, source: str, *more: Any) -> Any:
            found = list(re.finditer(pattern, source))
            for match in reversed(found[-1:] if last else found):
                source = source[: match.start()] + match.expand(replacement) + source[match.end() :]
            return original(self, source, *more)

        with mock.patch.object(CppScheduling, "define_kernel", define_kernel):
            yield

    return plant


def call(operator: Any, *args: Any, **kwargs: Any) -> Any:
    return lowering.lowerings[operator](*args, **kwargs)


def scaled(factor: float) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return lambda right: lambda *args, **kwargs: call(aten.mul.Tensor, right(*args, **kwargs), factor)


def swapped(right: Callable[..., Any]) -> Callable[..., Any]:
    def wrong(first: Any, second: Any, *more: Any, **kwargs: Any) -> Any:
        both = hasattr(first, "get_size") and hasattr(second, "get_size")
        return right(second, first, *more, **kwargs) if both else right(first, second, *more, **kwargs)

    return wrong


def normal(*shape: int, dtype: torch.dtype = torch.float32, grad: bool = False) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, generator=generator).to(dtype).requires_grad_(grad)


def gate(x, w):
    h = x @ w
    e = torch.exp(h * 0.1)
    y = e + h
    return y / (1.0 + y.abs())


def activation(x, b):
    h = x + b
    g = torch.nn.functional.gelu(h)
    return (g * 2.0).tanh()


def sigmoid_gate(x, b):
    h = x - b
    s = torch.sigmoid(h)
    return h * s + 1.0


def rows(x, w):
    h = (x @ w).relu()
    total = h.sum(-1, keepdim=True)
    return h - total * 0.01


def attention(q, k):
    scores = q @ k.t()
    p = torch.softmax(scores, -1)
    return p @ q


def norm(x, w, b):
    h = x * 1.5
    y = torch.nn.functional.layer_norm(h, (h.shape[-1],), w, b)
    return y.relu() + h


def halves(x, y):
    h = (x * 0.7).exp()
    d = h - y
    return d.abs().log1p()


def ratio(x, y):
    a = x.abs() + 1.0
    q = a / y
    return q.sqrt() + a


def angles(x, y):
    a = x * 2.0
    t = torch.atan2(a, y)
    return t.sin() + a


def choose(x, y):
    c = x > y
    z = torch.where(c, x, y)
    return z * z - x


def joined(x, y):
    a = x.sin()
    z = torch.cat([a, y], -1)
    return z * 3.0 + 1.0


def padded(x):
    h = x * 2.0
    p = torch.nn.functional.pad(h, (2, 3), value=0.5)
    return p.cos() + p


def pooled(x):
    h = x.relu()
    p = torch.nn.functional.avg_pool2d(h, 3, 2, 1)
    return p * 2.0 - 1.0


def masked(x):
    h = x @ x.t()
    t = torch.triu(h, 1)
    return t.exp() - 1.0


def rounded(x):
    h = x * 3.0
    r = torch.round(h)
    return r - h


def divided(x, y):
    h = x * 10.0
    d = torch.div(h, y, rounding_mode="floor")
    return d + h


def counted(x, index, values):
    h = x * 2.0
    s = h.index_put((index,), values, accumulate=True)
    return s.tanh() + 1.0


def embedded(table, index):
    e = torch.nn.functional.embedding(index, table)
    return (e * e).sum()


def trained_tanh(x, w):
    h = x @ w
    t = torch.tanh(h)
    return (t * x).sum()


def trained_relu(x, w):
    h = x * w
    r = torch.nn.functional.relu(h)
    return (r * 2.0).sum()


def deep(x, b):
    h = (x + b).sin()
    k = h * 0.5
    return k - 0.25


def summed(x):
    h = x.exp()
    s = h.sum(-1)
    return s.log()


def averaged(x):
    h = x * 1.25
    m = h.mean(-1)
    return m + 1.0


def cast(x):
    h = x * 7.3
    i = h.to(torch.int32)
    return i + 1


def layer_norm(epsilon: float = 1.0, correction: int = 0) -> Callable[[Any], Callable[..., Any]]:
    def make(_: Any) -> Callable[..., Any]:
        def wrong(x: Any, shape: Any, weight: Any, bias: Any, eps: float) -> Any:
            over = list(range(x.dim() - len(shape), x.dim()))
            variance, mean = torch.var_mean(x, over, correction=correction, keepdim=True)
            inverse = torch.rsqrt(variance + eps * epsilon)
            return (x - mean) * inverse * weight + bias, mean, inverse

        return wrong

    return make


def _pad_off(right: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, padding, value=0: right(x, [padding[0] + 1, padding[1] - 1, *padding[2:]], value)


def _no_accumulate(right: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, indices, values, accumulate=False: right(x, indices, values, False)


def _other_dim(right: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, dim, *more, **kwargs: call(aten.permute.default, right(x, [0], *more, **kwargs), [1, 0])


def _drops_last(right: Callable[..., Any]) -> Callable[..., Any]:
    return lambda tensors, dim=0: right([tensors[0], *tensors[:-1]], dim)


def _without_padding(right: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, size, stride=(), padding=0, ceil=False, include=True, override=None: right(
        x, size, stride, padding, ceil, not include, override
    )


def _half_up(right: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x: call(aten.floor.default, call(aten.add.Tensor, x, 0.5))


def _truncated(right: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, y, rounding_mode=None: right(x, y, rounding_mode="trunc")


def _other_branch(right: Callable[..., Any]) -> Callable[..., Any]:
    return lambda condition, x, y: right(condition, y, x)


def _floored(right: Callable[..., Any]) -> Callable[..., Any]:
    def wrong(x: Any, dtype: torch.dtype, *more: Any, **kwargs: Any) -> Any:
        return right(call(aten.floor.default, x) if dtype is torch.int32 else x, dtype, *more, **kwargs)

    return wrong


SQUARE = 24
BUILT = (
    Fault(
        "wrong constant", "exp", gate, lambda: (normal(8, 16), normal(16, 40)), lowered(aten.exp.default, scaled(1.0005)), "aten.exp", "e ="
    ),
    Fault(
        "wrong constant",
        "gelu",
        activation,
        lambda: (normal(12, 33), normal(33)),
        decomposed(aten.gelu.default, lambda _: lambda x, approximate="none": x * 0.5 * (1 + torch.erf(x * 0.7))),
        "aten.gelu",
        "g =",
    ),
    Fault(
        "wrong dimension",
        "sum",
        rows,
        lambda: (normal(SQUARE, 8), normal(8, SQUARE)),
        lowered(aten.sum.dim_IntList, _other_dim),
        "aten.sum",
        "total =",
    ),
    Fault(
        "wrong constant",
        "layer norm with the other variance",
        norm,
        lambda: (normal(6, 20), normal(20), normal(20)),
        decomposed(aten.native_layer_norm.default, layer_norm(correction=1)),
        "aten.native_layer_norm",
        "y =",
    ),
    Fault("swapped operands", "sub", halves, lambda: (normal(9, 17), normal(9, 17)), lowered(aten.sub.Tensor, swapped), "aten.sub", "d ="),
    Fault(
        "swapped operands",
        "where",
        choose,
        lambda: (normal(50), normal(5, 10).reshape(50)),
        lowered(aten.where.self, _other_branch),
        "aten.where",
        "z =",
    ),
    Fault(
        "stale buffer",
        "an earlier value is stored",
        deep,
        lambda: (normal(8, 16), normal(16)),
        written(r"tmp\d+\.store\((out_ptr\d+)", r"tmp0.store(\1", last=True),
        "aten.sub",
        "k - 0.25",
    ),
    Fault(
        "wrong mask at the edge",
        "pad",
        padded,
        lambda: (normal(5, 11),),
        lowered(aten.constant_pad_nd.default, _pad_off),
        "aten.constant_pad_nd",
        "p =",
    ),
    Fault(
        "wrong mask at the edge",
        "the last element is not written",
        deep,
        lambda: (normal(67), normal(67, dtype=torch.float32) * 2),
        written(r"(\.store\(out_ptr\d+ \+ static_cast<int64_t>\(x0\), static_cast<int64_t>\()3L", r"\g<1>2L", last=True),
        "aten.sub",
        "k - 0.25",
    ),
    Fault(
        "lost accumulate",
        "index_put",
        counted,
        lambda: (normal(10, 4), torch.tensor([1, 1, 3, 3, 3]), normal(5, 4)),
        lowered((aten.index_put.default, aten.index_put_.default), _no_accumulate),
        "aten.index_put",
        "s =",
    ),
    Fault(
        "wrong rounding mode",
        "round",
        rounded,
        lambda: (torch.arange(-12, 12) / 6.0,),
        lowered(aten.round.default, _half_up),
        "aten.round",
        "r =",
    ),
    Fault(
        "missing cast",
        "to an integer",
        cast,
        lambda: (normal(40),),
        lowered(torch.ops.prims.convert_element_type.default, _floored),
        "aten._to_copy",
        "i =",
    ),
    Fault(
        "wrong derivative",
        "tanh",
        trained_tanh,
        lambda: (normal(8, 8, grad=True), normal(8, 9, grad=True)[:, :8].detach().requires_grad_()),
        decomposed(aten.tanh_backward.default, lambda _: lambda grad, y: grad * (1 - y)),
        "aten.tanh_backward",
        "t =",
    ),
)
HELD_OUT = (
    Fault(
        "wrong constant",
        "sigmoid",
        sigmoid_gate,
        lambda: (normal(14, 9), normal(9)),
        lowered(aten.sigmoid.default, lambda right: lambda x: right(call(aten.mul.Tensor, x, 1.01))),
        "aten.sigmoid",
        "s =",
    ),
    Fault(
        "wrong constant",
        "the epsilon of a layer norm",
        norm,
        lambda: (normal(6, 20), normal(20), normal(20)),
        decomposed(aten.native_layer_norm.default, layer_norm(epsilon=10.0)),
        "aten.native_layer_norm",
        "y =",
    ),
    Fault(
        "wrong dimension",
        "softmax",
        attention,
        lambda: (normal(SQUARE, 16), normal(SQUARE, 17)[:, :16].contiguous()),
        decomposed(
            aten._softmax.default,
            lambda _: lambda x, dim, half: torch.exp(x - x.amax(0, True)) / torch.exp(x - x.amax(0, True)).sum(0, True),
        ),
        "aten._softmax",
        "p =",
    ),
    Fault(
        "swapped operands",
        "div",
        ratio,
        lambda: (normal(7, 13), normal(7, 13).abs() + 0.5),
        lowered(aten.div.Tensor, swapped),
        "aten.div",
        "q =",
    ),
    Fault(
        "swapped operands",
        "atan2",
        angles,
        lambda: (normal(30), normal(3, 10).reshape(30)),
        lowered(aten.atan2.default, swapped),
        "aten.atan2",
        "t =",
    ),
    Fault(
        "stale buffer",
        "cat of the first twice",
        joined,
        lambda: (normal(6, 8), normal(8, 6).reshape(6, 8)),
        lowered(aten.cat.default, _drops_last),
        "aten.cat",
        "z =",
    ),
    Fault(
        "wrong mask at the edge",
        "avg_pool2d",
        pooled,
        lambda: (normal(1, 2, 9, 9),),
        lowered(aten.avg_pool2d.default, _without_padding),
        "aten.avg_pool2d",
        "p =",
    ),
    Fault(
        "wrong mask at the edge",
        "triu",
        masked,
        lambda: (normal(9, 4) * 0.3,),
        decomposed(aten.triu.default, lambda right: lambda x, diagonal=0: right(x, diagonal - 1)),
        "aten.triu",
        "t =",
    ),
    Fault(
        "lost accumulate",
        "the gradient of an embedding",
        embedded,
        lambda: (normal(10, 4, grad=True), torch.tensor([1, 1, 3, 3, 3, 7])),
        lowered((aten.index_put.default, aten.index_put_.default), _no_accumulate),
        "aten.embedding_dense_backward",
        "e =",
    ),
    Fault(
        "lost accumulate",
        "a sum keeps the last",
        summed,
        lambda: (normal(6, 40),),
        written(r"(tmp_acc0(?:_vec)?) = \1 \+ (\w+);", r"\1 = \2;"),
        "aten.sum",
        "s =",
    ),
    Fault(
        "lost accumulate",
        "a mean of bfloat16 added up in bfloat16",
        averaged,
        lambda: (normal(4, 256, dtype=torch.bfloat16),),
        decomposed(aten.mean.dim, lambda _: _bfloat16_mean),
        "aten.mean",
        "m =",
    ),
    Fault(
        "wrong rounding mode",
        "div",
        divided,
        lambda: (normal(25), normal(5, 5).reshape(25)),
        lowered(aten.div.Tensor_mode, _truncated),
        "aten.div",
        "d =",
    ),
    Fault(
        "wrong derivative",
        "relu at zero",
        trained_relu,
        lambda: (torch.arange(-6.0, 6.0).requires_grad_(), torch.ones(12, requires_grad=True)),
        decomposed(aten.threshold_backward.default, lambda _: lambda grad, x, threshold: torch.where(x < threshold, 0.0, grad)),
        "aten.threshold_backward",
        "r =",
    ),
)


def _bfloat16_mean(x: Any, dim: Any, keepdim: bool = False, dtype: Any = None) -> Any:
    total = x[..., 0]
    for part in x.unbind(-1)[1:]:
        total = (total + part).to(torch.bfloat16)
    return total / x.shape[-1]
