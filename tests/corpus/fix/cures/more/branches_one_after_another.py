# 2 to cure
import torch

torch.manual_seed(0)


def step(x):
    y = x * 2
    if y.sum() > 0:
        y = y + 1
    z = y.cos()
    if z.sum() > 1:
        z = z - y
    return z


def data(number):
    return (torch.randn(6) + (1 if number % 2 else -1),)


compiled = torch.compile(step, backend="eager")
for number in range(6):
    result = compiled(*data(number))
    print(number, tuple(result.shape), f"{result.double().sum().item():.6f}")
