# 1 to cure
import torch

torch.manual_seed(0)


def step(x, bias=None):
    y = x * 2
    if bias is not None and y.sum() > 0:
        y = y + bias
    return y.sin()


def data(number):
    return (
        torch.randn(6) + (1 if number % 2 else -1),
        torch.ones(6),
    )


compiled = torch.compile(step, backend="eager")
for number in range(4):
    result = compiled(*data(number))
    print(number, tuple(result.shape), f"{result.double().sum().item():.6f}")
