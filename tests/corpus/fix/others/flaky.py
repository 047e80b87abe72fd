# says: its results in eager differ from run to run
import time

import torch

torch.manual_seed(0)


def step(x):
    y = x * 2
    if y.sum() > 0:
        y = y + 1
    return y.sin()


def data(number):
    return (torch.randn(6) + time.time_ns() % 997,)


compiled = torch.compile(step, backend="eager")
for number in range(4):
    result = compiled(*data(number))
    print(number, tuple(result.shape), f"{result.double().sum().item():.6f}")
