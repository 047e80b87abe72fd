"""160 small functions that every back end of torch compiles rightly: no verb may call one of them wrong.

`FUNCTIONS` has for each name the function and what makes its arguments. Values come from a generator of their own.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

Make = Callable[[], tuple[Any, ...]]
FUNCTIONS: dict[str, tuple[Callable[..., Any], Make]] = {}
ROWS, COLUMNS = 8, 16


def normal(seed: int, *shape: int, dtype: torch.dtype = torch.float32, grad: bool = False) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_(grad)


def whole(seed: int, *shape: int, high: int = 10) -> torch.Tensor:
    return torch.randint(0, high, shape, generator=torch.Generator().manual_seed(seed))


def add(name: str, function: Callable[..., Any], make: Make) -> None:
    FUNCTIONS[name] = (function, make)


def of_matrices(name: str, function: Callable[..., Any], count: int = 1, **options: Any) -> None:
    seed = zlib.crc32(name.encode()) % 1000
    add(name, function, lambda: tuple(normal(seed + at, ROWS, COLUMNS, **options) for at in range(count)))


for one in (
    *("sin", "cos", "tanh", "exp", "expm1", "sigmoid", "relu", "abs", "neg", "square", "erf", "atan", "floor", "ceil", "round", "sign"),
    *("trunc", "frac", "isfinite", "isnan", "logical_not", "sinh", "asinh", "sinc", "t", "flatten", "contiguous", "cumsum", "cumprod"),
    *("sum", "mean", "prod", "amax", "amin", "argmax", "argmin", "std", "var", "median", "logsumexp", "softmax", "log_softmax", "norm"),
    *("sort", "nonzero_static", "tril", "triu", "flip", "roll", "diag", "count_nonzero", "any", "all"),
):
    more: dict[str, tuple[Any, ...]] = dict.fromkeys(("cumsum", "cumprod", "logsumexp", "softmax", "log_softmax", "flip", "roll"), (1,))
    of_matrices(
        one, lambda x, one=one, more=more: getattr(x, one)(*more.get(one, ())) if one != "nonzero_static" else x.nonzero_static(size=9)
    )
for one in (
    "add",
    "sub",
    "mul",
    "div",
    "maximum",
    "minimum",
    "atan2",
    "hypot",
    "fmod",
    "remainder",
    "eq",
    "lt",
    "ge",
    "logaddexp",
    "copysign",
):
    of_matrices(f"binary {one}", lambda x, y, one=one: getattr(torch, one)(x, y), 2)
for one in (
    "gelu",
    "silu",
    "elu",
    "selu",
    "softplus",
    "mish",
    "hardswish",
    "hardtanh",
    "leaky_relu",
    "logsigmoid",
    "softsign",
    "tanhshrink",
):
    of_matrices(f"F.{one}", getattr(F, one))
    of_matrices(f"gradient of F.{one}", getattr(F, one), grad=True)
for short, dtype in (("bf16", torch.bfloat16), ("f16", torch.float16), ("f64", torch.float64)):
    of_matrices(f"{short} chain", lambda x: torch.tanh(x @ x.t()) * 2 + x.sum(1), dtype=dtype)
    of_matrices(f"{short} softmax", lambda x: x.softmax(-1), dtype=dtype)
    of_matrices(f"{short} norm", lambda x: F.layer_norm(x, (COLUMNS,)), dtype=dtype)
    of_matrices(f"{short} sum of squares", lambda x: (x * x).sum(), dtype=dtype)
    of_matrices(f"{short} gradient", lambda x: F.gelu(x @ x.t()).sum(), dtype=dtype, grad=True)
of_matrices("x + 0", lambda x: x + 0)
of_matrices("x * 1", lambda x: x * 1)
of_matrices("lerp", lambda x, y: torch.lerp(x, y, 0.0), 2)
of_matrices("cancellation", lambda x: ((x + 1e4) - 1e4).sum(1) - x.sum(1))
of_matrices("difference of near values", lambda x: x.exp().log() - x)
of_matrices("variance of nearly equal values", lambda x: (x * 1e-4 + 100).var(1))
of_matrices("sum that cancels", lambda x: (x - x.mean(1, keepdim=True)).sum(1))
of_matrices("log of a softmax", lambda x: (x * 30).softmax(1).log())
of_matrices("division by nearly nothing", lambda x: 1 / (x - x.sin() + 1e-3))
of_matrices("overflow", lambda x: (x * 60).exp())
of_matrices("infinities", lambda x: x / torch.zeros_like(x).relu())
of_matrices("nan", lambda x: x.log())
of_matrices("half overflow", lambda x: (x * 1e4).square().half())
of_matrices("threshold of a sum", lambda x: x.sum(1) > 0)
of_matrices("argmax of products", lambda x: (x @ x.t()).argmax(1))
of_matrices("to integers", lambda x: (x * 10).long())
of_matrices("to half and back", lambda x: x.half().float() * 3)
of_matrices("autocast", lambda x: (x @ x.t()).bfloat16().float().sum(1))
of_matrices("matmul", lambda x, y: x @ y.t(), 2)
of_matrices("addmm", lambda x, y: torch.addmm(x[:, :8], x, y.t()), 2)
of_matrices("einsum", lambda x, y: torch.einsum("ij,kj->ik", x, y), 2)
of_matrices("outer", lambda x: torch.outer(x[0], x[1]))
of_matrices("cat", lambda x, y: torch.cat([x, y * 2], 1), 2)
of_matrices("stack", lambda x, y: torch.stack([x, y]).sum(0), 2)
of_matrices("chunk", lambda x: [part + 1 for part in x.chunk(2, 1)])
of_matrices("split", lambda x: {"first": x.split(3)[0] * 2, "last": x.split(3)[2]})
of_matrices("view", lambda x: x.view(4, 32).transpose(0, 1))
of_matrices("slice", lambda x: x[::2, 1:5])
of_matrices("expand", lambda x: x[:1].expand(8, 16) + 1)
of_matrices("index", lambda x: x[torch.tensor([0, 3, 3])])
of_matrices("masked_fill", lambda x: x.masked_fill(x > 0, -1.0))
of_matrices("where", lambda x, y: torch.where(x > y, x, y * 2), 2)
of_matrices("topk", lambda x: x.topk(3, 1))
of_matrices("clamp", lambda x: x.clamp(-0.5, 0.5))
of_matrices("pad", lambda x: F.pad(x, (1, 2)))
of_matrices("unfold", lambda x: x.unfold(1, 4, 2).sum(-1))
of_matrices("cdist", lambda x, y: torch.cdist(x, y), 2)
of_matrices("normalize", lambda x: F.normalize(x, dim=1))
of_matrices("cosine", lambda x, y: F.cosine_similarity(x, y), 2)
of_matrices("layer norm", lambda x: F.layer_norm(x, (COLUMNS,)))
of_matrices("rms norm", lambda x: F.rms_norm(x, (COLUMNS,)))
of_matrices("mse", F.mse_loss, 2)
of_matrices("huber", F.smooth_l1_loss, 2)
of_matrices("item", lambda x: (x * 2, x.shape[0]))
of_matrices("gradient of a product", lambda x, y: (x @ y.t()).tanh(), 2, grad=True)
of_matrices("gradient of a softmax", lambda x: x.softmax(1), grad=True)
of_matrices("gradient of a norm", lambda x: F.layer_norm(x, (COLUMNS,)), grad=True)
of_matrices("gradient of a variance", lambda x: x.var(1), grad=True)
of_matrices("gradient that cancels", lambda x: (x - x.mean(1, keepdim=True)).square().sum(), grad=True)
of_matrices("gradient of a relu at its edge", lambda x: (x - x.sin()).relu(), grad=True)
of_matrices("complex", lambda x: torch.complex(x, x.flip(1)).abs())


def writes(x: torch.Tensor) -> torch.Tensor:
    x.mul_(0.5).add_(1)
    return x.sum(1)


def small_step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.sub_(y.tanh() * 1e-3)
    return y * 2


def running_mean(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.mul_(0.99).add_(y.mean(0), alpha=0.01)
    return y - x


of_matrices("writes its input", writes)
of_matrices("writes a view", lambda x: x[:, 2:4].zero_().sum() + x.sum())
of_matrices("a small step in place", small_step, 2)
of_matrices("a running mean in place", running_mean, 2)
add("embedding", lambda x, w: F.embedding(x, w), lambda: (whole(1, 4, 5), normal(2, 10, 8)))
add("cross entropy", F.cross_entropy, lambda: (normal(3, 8, 10), whole(4, 8)))
add("gradient of cross entropy", F.cross_entropy, lambda: (normal(3, 8, 10, grad=True), whole(4, 8)))
add("one_hot", lambda x: F.one_hot(x, 10), lambda: (whole(5, 8),))
add("gather", lambda x, at: x.gather(1, at), lambda: (normal(6, 8, 10), whole(7, 8, 3)))
add("scatter_add", lambda x, at, y: x.scatter_add(1, at, y), lambda: (normal(8, 8, 10), whole(9, 8, 3), normal(10, 8, 3)))
add("index_add", lambda x, at, y: x.index_add(0, at, y), lambda: (normal(11, 10, 4), whole(12, 6), normal(13, 6, 4)))
add("bincount-like", lambda x: torch.zeros(10).index_add(0, x, torch.ones(20)), lambda: (whole(14, 20),))
add("integers", lambda x: (x * 3 // 2 + 1) % 7, lambda: (whole(15, 8, 8),))
add("conv1d", F.conv1d, lambda: (normal(16, 2, 3, 16), normal(17, 4, 3, 3)))
add("conv2d", lambda x, w: F.conv2d(x, w, padding=1).relu(), lambda: (normal(18, 2, 3, 8, 8), normal(19, 4, 3, 3, 3)))
add(
    "gradient of conv2d", lambda x, w: F.conv2d(x, w).tanh(), lambda: (normal(20, 2, 3, 8, 8, grad=True), normal(21, 4, 3, 3, 3, grad=True))
)
add("max pool", lambda x: F.max_pool2d(x, 2), lambda: (normal(22, 2, 3, 8, 8),))
add("average pool", lambda x: F.avg_pool2d(x, 2), lambda: (normal(23, 2, 3, 8, 8),))
add("adaptive pool", lambda x: F.adaptive_avg_pool2d(x, 3), lambda: (normal(24, 2, 3, 8, 8),))
add("interpolate", lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear"), lambda: (normal(25, 1, 2, 5, 5),))
add("group norm", lambda x: F.group_norm(x, 2), lambda: (normal(26, 2, 4, 8, 8),))
add("batch norm", lambda x, m, v: F.batch_norm(x, m, v, training=True), lambda: (normal(27, 8, 4), torch.zeros(4), torch.ones(4)))
add("attention", F.scaled_dot_product_attention, lambda: tuple(normal(28 + at, 1, 2, 8, 16) for at in range(3)))
add("gradient of attention", F.scaled_dot_product_attention, lambda: tuple(normal(31 + at, 1, 2, 8, 16, grad=True) for at in range(3)))
add("long sum", lambda x: x.sum(), lambda: (normal(34, 200_000),))
add("long product of matrices", lambda x, y: x @ y, lambda: (normal(35, 4, 5000), normal(36, 5000, 4)))
add("long cumsum", lambda x: x.cumsum(0), lambda: (normal(37, 20_000),))
add("large mean of large values", lambda x: (x + 1000).var(), lambda: (normal(38, 50_000),))
add("bmm", torch.bmm, lambda: (normal(39, 3, 4, 5), normal(40, 3, 5, 6)))
add("linear", F.linear, lambda: (normal(41, 8, 16, grad=True), normal(42, 4, 16, grad=True), normal(43, 4, grad=True)))
add("searchsorted", torch.searchsorted, lambda: (torch.arange(10.0), normal(44, 6) * 5))
add(
    "complex product", lambda x, y: x * y.conj(), lambda: (normal(45, 4, 4, dtype=torch.complex64), normal(46, 4, 4, dtype=torch.complex64))
)
