# 1 to cure
import torch

torch.manual_seed(0)


def shifted(y):
    if y.sum() > 0:
        y = y - 1
    return y


def step(x):
    return shifted(x * 2).sin()


def data(number):
    return (torch.randn(6) + (1 if number % 2 else -1),)


compiled = torch.compile(step, backend="eager")
for number in range(4):
    result = compiled(*data(number))
    print(number, tuple(result.shape), f"{result.double().sum().item():.6f}")
