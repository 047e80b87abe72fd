# 1 to cure
import torch

torch.manual_seed(0)


def step(x):
    y = x * 2
    if torch.isinf(y).any() or torch.isnan(y).any():
        high = torch.finfo(y.dtype).max - 1000
        y = torch.clamp(y, min=-high, max=high)
    return y.sin()


def data(number):
    return (torch.tensor([1.0, float("inf") if number % 2 else 2.0, -3.0]),)


compiled = torch.compile(step, backend="eager")
for number in range(4):
    result = compiled(*data(number))
    print(number, tuple(result.shape), f"{result.double().sum().item():.6f}")
