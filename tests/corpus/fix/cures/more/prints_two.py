# 2 to cure
import torch

torch.manual_seed(0)


def step(x):
    print("begin")
    y = x * 2
    print("twice", y)
    return y.sin()


def data(number):
    return (torch.randn(6) + (1 if number % 2 else -1),)


compiled = torch.compile(step, backend="eager")
for number in range(4):
    result = compiled(*data(number))
    print(number, tuple(result.shape), f"{result.double().sum().item():.6f}")
