# 1 to cure
import torch

torch.manual_seed(0)


def step(x):
    y = x + 1 if x.sum() > 0 else x - 1
    return y * 2


def data(number):
    return (torch.randn(6) + (1 if number % 2 else -1),)


compiled = torch.compile(step, backend="eager")
for number in range(4):
    result = compiled(*data(number))
    print(number, tuple(result.shape), f"{result.double().sum().item():.6f}")
