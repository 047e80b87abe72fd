"""The recipes of `dynadiag/rules/pages`: each function before and after the fix, with inputs. `mutation_recipes.py FOLDER` records all.

Every entry of `RECIPES` is (before, after, inputs); both get equal inputs of their own, and are called twice.
"""

import contextlib
import sys
from pathlib import Path

import torch
import torch._dynamo
from torch import nn


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.n = 0

    def forward(self, x):
        self.n += 1
        return x * self.n


class TensorCounter(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("n", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        self.n.add_(1)
        return x * self.n


class Cache(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("k", torch.zeros(8, 4))
        self.pos = 0

    def forward(self, k):
        self.k[self.pos] = k
        self.pos += 1
        return self.k.sum()


class IndexedCache(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("k", torch.zeros(8, 4))
        self.register_buffer("pos", torch.zeros(1, dtype=torch.long))

    def forward(self, k):
        self.k.index_copy_(0, self.pos, k.view(1, 4))
        self.pos.add_(1)
        return self.k.sum()


def ema_before(ema, p):
    ema.data.mul_(0.9).add_(p.data, alpha=0.1)
    return (p * 2).sum()


def ema_after(ema, p):
    with torch.no_grad():
        ema.mul_(0.9).add_(p, alpha=0.1)
    return (p * 2).sum()


def argument_before(v):
    v.mul_(2)
    return v.sum()


def argument_after(v):
    v = v.mul(2)
    return v.sum()


def counter_before(m, x):
    return m[0](x)


def counter_after(m, x):
    return m[1](x)


def position_before(m, k):
    return m[0](k)


def position_after(m, k):
    return m[1](k)


def transpose_before(x):
    x.t_()
    return x + 1


def transpose_after(x):
    x = x.t()
    return x + 1


def overlap_before(b, x, y):
    x.mul_(2)
    return x + y


def overlap_after(b, _x, _y):
    x, y = b[:4], b[2:6]
    x.mul_(2)
    return x + y


def dtype_before(x, y):
    x.mul_(2)
    return x + 1, y + 1


def dtype_after(x):
    x.mul_(2)
    return x + 1, x.view(torch.int32) + 1


def body_before(m, x):
    return torch.utils.checkpoint.checkpoint(lambda value: _remember(m, value), x, use_reentrant=False)


def _remember(m, value):
    y = torch.sin(value)
    m.append(y)
    return y


def body_after(m, x):
    y = torch.utils.checkpoint.checkpoint(torch.sin, x, use_reentrant=False)
    m.append(y)
    return y


def static_before(cache, x):
    cache.add_(x)
    return cache * 2


def static_after(cache, x):
    cache.add_(x)
    return cache * 2


def out_before(a, o):
    torch.add(a, a, out=o)
    return o * 2


def out_after(a, o):
    o = torch.add(a, a)
    return o * 2


def parameter_before(m, x):
    m.weight = nn.Parameter(m.weight.detach() * 0.5)
    return x * m.weight


def parameter_after(m, x):
    with torch.no_grad():
        m.weight.mul_(0.5)
    return x * m.weight


def stacked_before(cache, _v, k, v, pos):
    cache[0].index_copy_(0, pos, k)
    cache[1].index_copy_(0, pos, v)
    return cache[0] + cache[1]


def stacked_after(cache_k, cache_v, k, v, pos):
    cache_k.index_copy_(0, pos, k)
    cache_v.index_copy_(0, pos, v)
    return cache_k + cache_v


def branch_before(seen, x):
    def yes(x):
        seen.add_(1)
        return x + 1

    return torch.cond(x.sum() > 0, yes, lambda x: x - 1, (x,))


def branch_after(seen, x):
    y, new = torch.cond(x.sum() > 0, lambda x, n: (x + 1, n + 1), lambda x, n: (x - 1, n.clone()), (x, seen))
    seen.copy_(new)
    return y


def hook_before(x):
    y = x * 2
    y.register_hook(_halve)
    return y * y


def _halve(g):
    g.mul_(0.5)


def hook_after(x):
    y = x * 2
    y.register_hook(lambda g: g * 0.5)
    return y * y


class BodyCounter(nn.Module):
    def __init__(self):
        super().__init__()
        self.n = 0

    def body(self, x):
        self.n += 1
        return torch.sin(x)

    def forward(self, x):
        return torch.utils.checkpoint.checkpoint(self.body, x, use_reentrant=False)


class OuterCounter(nn.Module):
    def __init__(self):
        super().__init__()
        self.n = 0

    def forward(self, x):
        y = torch.utils.checkpoint.checkpoint(torch.sin, x, use_reentrant=False)
        self.n += 1
        return y


class BufferCache(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("cache", torch.zeros(4))

    def forward(self, x):
        self.cache.add_(x)
        return self.cache * 2


def buffer_before(_m, cache, x):
    cache.add_(x)
    return cache * 2


def buffer_after(m, _cache, x):
    return m(x)


def losses_before(seen, x, w):
    loss = (x * w).sum()
    seen.append(loss.item())
    return loss


def losses_after(seen, x, w):
    loss = (x * w).sum()
    seen.append(loss.detach())
    return loss


def train_step(model, optimizer, x):
    optimizer.zero_grad()
    loss = model(x).sum()
    loss.backward()
    optimizer.step()
    return loss.detach()


def training(after):
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    if after:
        model.compile(backend="aot_eager")
        optimizer.step = torch.compile(optimizer.step, backend="aot_eager")
    return model, optimizer, torch.ones(2, 4)


def add_and_sum(x):
    return x.add_(1).sum()


LIBRARY = torch.library.Library("dynadiag_recipes", "FRAGMENT")
for schema in ("undeclared(Tensor x) -> Tensor", "declared(Tensor(a!) x) -> Tensor"):
    name = LIBRARY.define(schema)
    LIBRARY.impl(name, add_and_sum, "CompositeExplicitAutograd")
    torch.library.register_fake(f"dynadiag_recipes::{name}", lambda x: x.new_empty(()), lib=LIBRARY)


def undeclared_before(x):
    torch.ops.dynadiag_recipes.undeclared.default(x)
    return x * 2


def undeclared_after(x):
    torch.ops.dynadiag_recipes.declared.default(x)
    return x * 2


def leaf(*shape):
    return nn.Parameter(torch.ones(*shape))


def overlapping():
    base = torch.ones(8)
    return base, base[:4], base[2:6]


def marked():
    cache = torch.zeros(4)
    torch._dynamo.mark_static_address(cache)
    return cache, torch.ones(4)


def caches(after):
    first = torch.zeros(8, 4) if after else torch.zeros(2, 8, 4)
    return first, torch.zeros(8, 4), torch.ones(1, 4), torch.full((1, 4), 2.0), torch.tensor([1])


def of_two_types(after):
    base = torch.ones(8)
    return (base,) if after else (base, base.view(torch.int32))


RECIPES = {
    "ema": (ema_before, ema_after, lambda after: (leaf(4), leaf(4))),
    "argument": (argument_before, argument_after, lambda after: (torch.ones(4, requires_grad=True).clone(),)),
    "counter": (counter_before, counter_after, lambda after: (nn.ModuleList([Counter(), TensorCounter()]), torch.ones(4))),
    "position": (position_before, position_after, lambda after: (nn.ModuleList([Cache(), IndexedCache()]), torch.ones(4))),
    "transpose": (transpose_before, transpose_after, lambda after: (torch.ones(2, 3),)),
    "overlap": (overlap_before, overlap_after, lambda after: overlapping()),
    "dtype": (dtype_before, dtype_after, of_two_types),
    "body": (body_before, body_after, lambda after: ([], torch.ones(4, requires_grad=True))),
    "static": (static_before, static_after, lambda after: marked() if after else (torch.zeros(4), torch.ones(4))),
    "out": (out_before, out_after, lambda after: (torch.ones(4), torch.empty(0))),
    "stacked": (stacked_before, stacked_after, caches),
    "branch": (branch_before, branch_after, lambda after: (torch.zeros(4), torch.ones(4))),
    "hook": (hook_before, hook_after, lambda after: (torch.ones(4, requires_grad=True),)),
    "body counter": (counter_before, counter_after, lambda after: (nn.ModuleList([BodyCounter(), OuterCounter()]), leaf(4))),
    "buffer": (buffer_before, buffer_after, lambda after: (BufferCache(), torch.zeros(4), torch.ones(4))),
    "losses": (losses_before, losses_after, lambda after: ([], torch.ones(4), leaf(4))),
    "train step": (train_step, train_step, training),
    "undeclared": (undeclared_before, undeclared_after, lambda after: (torch.ones(4),)),
    "parameter": (parameter_before, parameter_after, lambda after: (nn.PReLU(4), torch.ones(4))),
}


def main(folder):
    import dynadiag
    from dynadiag.fx import probe_main as probe
    from dynadiag.torch_compat.dynamo.guard_timing import check_guards_untimed

    check_guards_untimed()
    for name, (before, after, make) in RECIPES.items():
        for side, function in (("before", before), ("after", after)):
            torch._dynamo.reset()
            with dynadiag.observe(folder / f"{name}-{side}", parity_calls=2), contextlib.suppress(Exception):
                arguments = make(side == "after")
                # What was copied is in the graph behind inductor's passes alone. The train step's cure compiles its parts.
                compiled = torch.compile(function, backend="inductor" if name == "stacked" else "aot_eager")
                compiled = function if (name, side) == ("train step", "after") else compiled
                for _ in range(1 if name in ("transpose", "out") else 2):
                    compiled(*arguments)
            probe.main([str(folder / f"{name}-{side}"), "--budget-s", "3000"])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
