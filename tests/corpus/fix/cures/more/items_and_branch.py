# 3 to cure
import torch

torch.manual_seed(0)


def step(x):
    top = x.max().item()
    y = x * top
    if y.sum() > 0:
        y = y + 1
    low = y.min().item()
    return y - low


def data(number):
    return (torch.randn(6) + (1 if number % 2 else -1),)


compiled = torch.compile(step, backend="eager")
for number in range(6):
    result = compiled(*data(number))
    print(number, tuple(result.shape), f"{result.double().sum().item():.6f}")
