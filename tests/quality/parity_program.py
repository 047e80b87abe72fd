"""Functions of known truth for the offline replay."""

import sys

import torch

lib = torch.library.Library("parity_truth", "FRAGMENT")
lib.define("ident(Tensor x) -> Tensor")
lib.impl("ident", lambda x: x, "CompositeExplicitAutograd")
torch.library.register_fake("parity_truth::ident", lambda x: torch.empty_like(x), lib=lib)
lib.define("bump(Tensor x) -> Tensor")
lib.impl("bump", lambda x: x.add_(1) * 2, "CompositeExplicitAutograd")
torch.library.register_fake("parity_truth::bump", lambda x: torch.empty_like(x), lib=lib)


def overlap(x, y):
    x.mul_(2)
    return x + y


def swap(a, b):
    t = a.clone()
    a.copy_(b)
    b.copy_(t)
    return a - b


def alias_not_declared(x):
    y = torch.ops.parity_truth.ident(x)
    y.add_(1)
    return y + x


def write_not_declared(x):
    torch.ops.parity_truth.bump(x)
    return x * 3


def cached(x, y):
    x.mul_(2)
    return x[:4] + y[:4]


def no_write(x, y):
    return x @ y, x.t(), x


def noisy(x):
    return x + torch.randn_like(x), torch.nn.functional.dropout(x)


def cancelled(x, y):
    return (x + 1e6 * y) - 1e6 * y


def ranked(x):
    return x.argmax(-1), x.sort().indices


def half(x, w):
    return torch.relu(x @ w).sum(-1) / w.norm()


def views(x):
    y = x * 2
    return y, y[0], y.t(), x[1:], x


def detached(x, w):
    y = x * w
    return y.detach() + w, y


def written_leaf(x, w):
    y = x * w
    y.add_(1)
    return y.sum()


def statistics(x, mean, variance):
    return torch.nn.functional.batch_norm(x, mean, variance, training=True)


def refused_by_eager(buffer, x):
    buffer[2:4] = x
    return buffer.sum()


def behind_a_break(x, y):
    z = x * 2
    torch._dynamo.graph_break()
    z.mul_(y)
    return z + x


def calls():
    """Each function with its inputs."""
    randn, leaf = torch.randn, torch.randn(4, 4, requires_grad=True)
    square = randn(4, 4)
    for function in (overlap, swap):
        yield function, randn(4), randn(4)
    for function in (alias_not_declared, write_not_declared, noisy):
        yield function, randn(4)
    for function in (no_write, cancelled, behind_a_break):
        yield function, square, randn(4, 4)
    for function in (ranked, views):
        yield function, square
    yield half, randn(16, 16).bfloat16(), randn(16, 16).bfloat16()
    for function in (detached, written_leaf):
        yield function, leaf, randn(4, 4, requires_grad=True)
    yield statistics, square, torch.zeros(4), torch.ones(4)
    yield refused_by_eager, torch.zeros(8), randn(2)


if __name__ == "__main__":
    for function, *inputs in calls():
        torch.compile(function, backend="aot_eager")(*inputs)
    if "--inductor" in sys.argv:
        torch.compile(cached)(torch.randn(8), torch.randn(8))
