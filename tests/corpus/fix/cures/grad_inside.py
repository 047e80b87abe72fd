# 1 to cure
import torch

torch.manual_seed(0)


def step(x):
    x = x.detach().requires_grad_()
    y = (x * x).sum()
    (slope,) = torch.autograd.grad(y, x)
    return slope * 2


def data(number):
    return (torch.randn(6) + (1 if number % 2 else -1),)


compiled = torch.compile(step, backend="eager")
for number in range(4):
    result = compiled(*data(number))
    print(number, tuple(result.shape), f"{result.double().sum().item():.6f}")
