# 1 to cure
import torch

torch.manual_seed(0)


def limited(y):
    if y.max() > 1:
        y = y.clamp(max=1.0)
    return y


def step(x):
    return limited(x * 2) + limited(x + 1)


def data(number):
    return (torch.randn(6) + (1 if number % 2 else -1),)


compiled = torch.compile(step, backend="eager")
for number in range(4):
    result = compiled(*data(number))
    print(number, tuple(result.shape), f"{result.double().sum().item():.6f}")
