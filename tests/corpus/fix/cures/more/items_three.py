# 3 to cure
import torch

torch.manual_seed(0)


def step(x):
    low = x.min().item()
    high = x.max().item()
    middle = x.mean().item()
    return x * low + high - middle


def data(number):
    return (torch.randn(6) + (1 if number % 2 else -1),)


compiled = torch.compile(step, backend="aot_eager")
for number in range(4):
    result = compiled(*data(number))
    print(number, tuple(result.shape), f"{result.double().sum().item():.6f}")
