"""Compiled functions of torch's own, called from marked lines, and functions without tensor work; recorded by a test."""

import torch
from torch import nn


def call(compiled, *arguments):
    return compiled(*arguments)


class Timer:
    def __enter__(self):
        return self

    def __exit__(self, *raised):
        return False


class Empty(nn.Module):
    def forward(self, x):
        return x


def nothing(x):
    return x


def count(number):
    return number + 1


def step(x):
    with Timer():
        print("in the middle")
        x = x * 2
    print("rest", count(3))
    return x


@torch.compiler.disable
def only_marked(x):
    return x


@torch.compiler.disable
def called(x):
    return x * 5


def calls(x):
    return called(x + 1) + 1  # runs eager: called


def main():
    torch.compile(Empty(), backend="eager")(torch.ones(3))
    torch.compile(nothing, backend="eager")(torch.ones(3))
    torch.compile(step, backend="eager")(torch.ones(3))
    torch.compile(calls, backend="eager")(torch.ones(3))
    only_marked(torch.ones(3))
    layers = torch.compile(nn.Sequential(nn.Linear(3, 3), nn.ReLU()), backend="eager", dynamic=False)
    for size in (2, 3):
        layers(torch.ones(size, 3))  # recompiles: first
    layers(torch.ones(5, 3))  # recompiles: second
    weight = nn.Parameter(torch.ones(3))
    weight.grad = torch.ones(3)
    zero = torch.compile(torch.optim.SGD([weight]).zero_grad, backend="eager", fullgraph=True)
    try:
        zero()  # breaks: fullgraph
    except Exception as error:
        print(type(error).__name__)


if __name__ == "__main__":
    main()
