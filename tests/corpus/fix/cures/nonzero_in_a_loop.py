# 1 to cure
import torch

torch.manual_seed(0)


def step(x):
    total = x.sum()
    for row in range(3):
        total = total + torch.nonzero(x[row] > 0).float().mean()
    return x * total


def data(number):
    return (torch.randn(3 + number, 6),)


compiled = torch.compile(step, backend="eager", dynamic=True)
for number in range(4):
    result = compiled(*data(number))
    print(number, tuple(result.shape), f"{result.double().sum().item():.6f}")
