"""Small programs, one for each kind of thing that a step does."""

from __future__ import annotations

import torch


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
