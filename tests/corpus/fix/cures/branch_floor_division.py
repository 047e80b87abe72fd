# 1 to cure
import torch

torch.manual_seed(0)


def step(x):
    total = x.sum()
    if total != 0:
        x = 12 // total + x
    return x * 2


def data(number):
    return (torch.arange(6) - (20 if number % 2 else 15),)


compiled = torch.compile(step, backend="eager")
for number in range(4):
    result = compiled(*data(number))
    print(number, tuple(result.shape), f"{result.double().sum().item():.6f}")
