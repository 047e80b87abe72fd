"""Recorded once for the tests of the offline replay: functions with known truth."""

import torch


def later(x, y):
    x.mul_(2)
    return x + y


def clean(x, y):
    return (x * y).sum(dim=0), x - y


def dropped(x):
    return torch.nn.functional.dropout(x, 0.5)


def trained(w, x):
    return torch.tanh(x @ w).sum()


def seen(x, y):
    return x * 3 + y


def own_backend(graph, inputs):
    return graph.forward


def resumed(x, y):
    z = x * 2
    print("a break")
    z.add_(1)
    return z + y


if __name__ == "__main__":
    for function in (later, clean, resumed):
        torch.compile(function, backend="aot_eager")(torch.ones(4), torch.ones(4))
    torch.compile(dropped, backend="aot_eager")(torch.ones(4))
    torch.compile(trained, backend="aot_eager")(torch.ones(4, 4, requires_grad=True), torch.ones(2, 4))
    torch.compile(seen, backend=own_backend)(torch.ones(4), torch.ones(4))
