"""Small programs, and backends that compile them wrongly: each backend plants one kind of wrong result."""

from __future__ import annotations

import torch


def lose_mutations(graph, _inputs):
    return lambda *args: graph(*[value.clone() if isinstance(value, torch.Tensor) and not value.requires_grad else value for value in args])


def change_dtype(graph, _inputs):
    return lambda *args: tuple(value.half() if _floating(value) else value for value in graph(*args))


def _floating(value):
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def stale_output(graph, _inputs):
    kept = []

    def run(*args):
        outputs = graph(*args)
        if not kept:
            kept.append([value.detach().clone() if isinstance(value, torch.Tensor) else value for value in outputs])
        return tuple(kept[0])

    return run


def drop_gradient(graph, _inputs):
    def run(*args):
        last = max((at for at, value in enumerate(args) if isinstance(value, torch.Tensor) and value.requires_grad), default=None)
        return graph(*[value.detach() if at == last else value for at, value in enumerate(args)])

    return run


def slightly_off(graph, _inputs):
    return lambda *args: tuple(value * 1.001 if _floating(value) else value for value in graph(*args))


def half_precision_inside(graph, _inputs):
    return lambda *args: graph(*[_rounded(value) if _floating(value) else value for value in args])


def _rounded(value):
    return value + (value.detach().bfloat16().float() - value.detach())


def one_nan(graph, _inputs):
    def run(*args):
        outputs = []
        for value in graph(*args):
            if _floating(value) and value.numel() > 1:
                hole = torch.zeros_like(value)
                hole.view(-1)[0] = float("nan")
                value = value + hole
            outputs.append(value)
        return tuple(outputs)

    return run


def wrong_shape(graph, _inputs):
    return lambda *args: tuple(value[None] if _floating(value) else value for value in graph(*args))


def one_element_off(graph, _inputs):
    def run(*args):
        outputs = graph(*args)
        for value in outputs:
            if _floating(value) and value.numel() > 1:
                with torch.no_grad():
                    value.view(-1)[-1] += 1.0
        return outputs

    return run


def off_by_one_index(graph, _inputs):
    def run(*args):
        return tuple(value + 1 if isinstance(value, torch.Tensor) and not value.is_floating_point() else value for value in graph(*args))

    return run


def gradient_twice(graph, _inputs):
    return lambda *args: tuple(_Twice.apply(value) if _floating(value) else value for value in graph(*args))


class _Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, value):
        return value.clone()

    @staticmethod
    def backward(ctx, gradient):
        return 2 * gradient


class Norm(torch.nn.Module):
    """Has a buffer that a call updates, and a Python counter."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(16))
        self.register_buffer("mean", torch.zeros(16))
        self.calls = 0

    def forward(self, x):
        self.mean.mul_(0.9).add_(0.1 * x.detach().mean(0))
        self.calls += 1
        return (x - self.mean) * self.weight


def network():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.GELU(), torch.nn.Linear(16, 16))


def doubled(graph, _inputs):
    return lambda *args: tuple(value * 2 if _floating(value) else value for value in graph(*args))


def dropped(graph, _inputs):
    return lambda *args: tuple(value * 0 + 0 if _floating(value) else value for value in graph(*args))


def forward_and_backward():
    return network(), torch.randn(8, 16)


def buffer_update():
    torch.manual_seed(1)
    return Norm(), torch.randn(8, 16)


def in_place():
    cache = torch.zeros(8, 16)

    def write(x):
        cache.mul_(0.5).add_(x)
        return x.sum(1)

    return write, torch.randn(8, 16)


def indices():
    return lambda x: (x.argmax(1), x.sin()), torch.randn(8, 16)


def train_step():
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    batch = torch.randn(8, 16)

    def step():
        optimizer.zero_grad()
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return step


def with_dropout():
    model = torch.nn.Sequential(network(), torch.nn.Dropout(0.5))
    return model, torch.randn(8, 16)


def inexact_in_eager():
    """Adding a million and taking it away leaves eager 14 % from float64."""

    def cancel(x):
        return ((x * 0.125 + 1e6) - 1e6).reshape(-1)

    return cancel, torch.randn(64, 32)


def attention_with_a_key_bias():
    """The gradient of the key's bias is zero in exact arithmetic: what eager has there is rounding."""
    torch.manual_seed(1)

    class Attention(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.query, self.key = torch.nn.Linear(32, 32), torch.nn.Linear(32, 32)

        def forward(self, x):
            return (self.query(x) @ self.key(x).transpose(1, 2)).softmax(-1) @ x

    return Attention(), torch.randn(4, 16, 32)


def no_dropout(graph, _inputs):
    for node in graph.graph.nodes:
        if node.target is torch.nn.functional.dropout:
            node.replace_all_uses_with(node.args[0])
    graph.recompile()
    return graph


def second_call_wrong(graph, _inputs):
    calls = []

    def run(*args):
        calls.append(1)
        return tuple(value * 1.01 if _floating(value) and len(calls) == 2 else value for value in graph(*args))

    return run


def half_the_step(graph, _inputs):
    """The learning rate, and what an optimizer adds with it, is halved."""
    for node in graph.graph.nodes:
        if node.kwargs.get("alpha") == -SMALL_LR:
            node.kwargs = {**node.kwargs, "alpha": -SMALL_LR / 2}
    graph.recompile()
    return graph


SMALL_LR = 1e-6


def small_steps():
    """What a step adds to a parameter is a millionth of it; each appends its loss to a list."""
    model, losses = network(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=SMALL_LR, foreach=True)
    batch = torch.randn(8, 16)

    def step():
        optimizer.zero_grad()
        loss = (model(batch) * 100).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())

    return step


def all_zero():
    return lambda x: x * 0, torch.randn(8, 16)


def no_gradient():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step():
        optimizer.zero_grad()
        loss = (model(torch.ones(4, 16)).detach() * torch.ones((), requires_grad=True)).sum()
        loss.backward()
        optimizer.step()
        return loss

    return step


def nothing_comes_back():
    return lambda: None


def not_deterministic():
    calls = []

    def step():
        calls.append(torch.randn(4, generator=torch.Generator().manual_seed(torch.seed())))
        return calls[-1]

    return step


def at_the_edge_of_a_relu():
    """Four activations are so near to zero that rounding decides on which side they are; eager and float64 agree."""
    torch.manual_seed(2)
    layer = torch.nn.Linear(64, 16)
    x = torch.randn(1, 64)
    with torch.no_grad():
        exact = (x.double() @ layer.weight.double().T)[0]
        layer.bias.copy_(torch.where(torch.arange(16) < 4, 6e-7, 1.0) - exact)
    layer.bias.requires_grad_(False)
    return lambda x: layer(x).relu().sum(), x.requires_grad_()


def other_rounding(graph, _inputs):
    """Sums that are off by 2e-6, as another order of summing may leave them."""

    def run(*args):
        return graph(*[value - 2e-6 if _floating(value) and value.shape == (16,) else value for value in args])

    return run


def other_strides(graph, _inputs):
    return lambda *args: tuple(value.t().contiguous().t() if _floating(value) and value.dim() == 2 else value for value in graph(*args))


def output_is_the_input(graph, _inputs):
    return lambda *args: (next(value for value in args if _floating(value)), *graph(*args)[1:])


def other_infinities(graph, _inputs):
    return lambda *args: tuple(torch.where(value.isinf(), -value, value) if _floating(value) else value for value in graph(*args))


def nan_for_infinity(graph, _inputs):
    return lambda *args: tuple(torch.where(value.isinf(), torch.nan, value) if _floating(value) else value for value in graph(*args))


def parameters_of_the_first_call(graph, _inputs):
    kept = []

    def run(*args):
        if not kept:
            kept.append([value.detach().clone() if isinstance(value, torch.nn.Parameter) else None for value in args])
        return graph(*[value if old is None else value + (old - value.detach()) for value, old in zip(args, kept[0], strict=True)])

    return run


def backward_of_ones(graph, _inputs):
    return lambda *args: tuple(_Ones.apply(value) if _floating(value) and value.requires_grad else value for value in graph(*args))


class _Ones(torch.autograd.Function):
    @staticmethod
    def forward(ctx, value):
        return value.clone()

    @staticmethod
    def backward(ctx, gradient):
        return torch.ones_like(gradient)


def scalar_loss():
    model = network()
    return lambda x: model(x).square().mean(), torch.randn(8, 16)


def copies_and_views():
    return lambda x: (x.clone(), x.view(-1), x.t(), x.contiguous(), x, x[1:]), torch.randn(8, 16)


def infinities():
    return lambda x: (x.relu().log(), x.sin()), torch.randn(8, 16)


def write_that_repeats_itself():
    """Another call with the same data writes the same values."""
    cache = torch.zeros(4, 16)

    def write(x):
        cache[2].copy_(x.sum(0))
        return x.cos()

    return write, torch.randn(8, 16)


def accumulating():
    """Gradients are added to those of the step before."""
    model, batch = network(), torch.randn(8, 16)

    def step():
        loss = model(batch).square().mean()
        loss.backward()
        return loss

    return step


def channels_last():
    torch.manual_seed(1)
    layers = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU())
    return layers.to(memory_format=torch.channels_last), torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last)


def twice_normalised():
    """The second norm keeps the mean of what the first has centred: nothing but rounding."""
    torch.manual_seed(0)
    parts = torch.nn.BatchNorm2d(4), torch.nn.Conv2d(4, 4, 1, bias=False), torch.nn.BatchNorm2d(4)
    return torch.nn.Sequential(*parts), torch.randn(2, 4, 32, 32)


def one_by_one(graph, _inputs):
    """As right as C++ that adds up 2,048 numbers one after the other, where eager adds pairs."""
    return _with_running_means(graph, 0.0)


def means_a_little_off(graph, _inputs):
    return _with_running_means(graph, 1e-5)


def _with_running_means(graph, off):
    def batch_norm(x, mean, *rest, **options):
        before = mean.clone()
        result = torch.nn.functional.batch_norm(x, mean, *rest, **options)
        values = x.detach().transpose(0, 1).flatten(1)
        total = values[:, 0].clone()
        for at in range(1, values.shape[1]):
            total += values[:, at]
        mean.data.copy_(0.9 * before + 0.1 * (total / values.shape[1] + off))
        return result

    for node in graph.graph.find_nodes(op="call_function", target=torch.nn.functional.batch_norm):
        node.target = batch_norm
    graph.recompile()
    return graph
