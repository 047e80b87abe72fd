# 1 to cure
import torch

torch.manual_seed(0)


def step(x):
    y = x.cos()
    if not torch.isfinite(y).all():
        y = torch.zeros_like(y)
    return y + 1


def data(number):
    return (torch.tensor([float("inf") if number % 2 else 1.0, 2.0]),)


compiled = torch.compile(step, backend="eager")
for number in range(4):
    result = compiled(*data(number))
    print(number, tuple(result.shape), f"{result.double().sum().item():.6f}")
