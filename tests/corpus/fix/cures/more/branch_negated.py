# 1 to cure
import torch

torch.manual_seed(0)


def step(x):
    y = x * 2
    if not (x > 0).all() and x.sum() > 0:
        y = y + 1
    return y.cos()


def data(number):
    return (torch.randn(6),)


compiled = torch.compile(step, backend="eager")
for number in range(4):
    result = compiled(*data(number))
    print(number, tuple(result.shape), f"{result.double().sum().item():.6f}")
