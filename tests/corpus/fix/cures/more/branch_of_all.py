# 1 to cure
import torch

torch.manual_seed(0)


def step(x, mask):
    y = x * 2
    if not mask.all():
        y = y * mask
    return y.sin()


def data(number):
    return (
        torch.randn(6),
        torch.ones(6, dtype=torch.bool) if number % 2 else torch.arange(6) > 2,
    )


compiled = torch.compile(step, backend="eager")
for number in range(4):
    result = compiled(*data(number))
    print(number, tuple(result.shape), f"{result.double().sum().item():.6f}")
