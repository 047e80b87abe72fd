"""A training step with a mark, and backends that crash or compile wrongly."""

import os
import signal

import torch
import torch._dynamo

import dynadiag

print("what a program prints does not disturb the benchmark")


@torch._dynamo.register_backend
def planted_crash(graph, inputs):
    os.kill(os.getpid(), signal.SIGSEGV)


@torch._dynamo.register_backend
def planted_wrong(graph, inputs):
    return lambda *args: tuple(value * 1.01 if isinstance(value, torch.Tensor) else value for value in graph(*args))


@dynadiag.benchmark
def training():
    model = torch.nn.Linear(32, 32)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    batch = torch.randn(16, 32)
    forward = torch.compile(model)

    def step():
        optimizer.zero_grad()
        loss = forward(batch).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return step


def nothing_to_compile():
    return lambda: None


def raises():
    raise RuntimeError("this program\nis broken")


def with_arguments(batch):
    return batch
