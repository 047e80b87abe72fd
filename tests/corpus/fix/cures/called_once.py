# 1 to cure
import torch

torch.manual_seed(0)


def step(x):
    y = x * 2
    if y.sum() > 0:
        y = y + 1
    return y.sin()


def data(number):
    return (torch.randn(6) + (1 if number % 2 else -1),)


compiled = torch.compile(step, backend="eager")
print(f"{compiled(*data(0)).sum().item():.6f}")
