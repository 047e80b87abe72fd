# the natural rewrite, which is wrong:
# - s = x.sum().item()
# + s = x.sum().detach()
import torch

torch.manual_seed(0)


def step(x):
    s = x.sum().item()
    try:
        t = 1.0 / s
    except ZeroDivisionError:
        t = 0.0
    return x * t


def data(number):
    return (torch.randn(6) if number < 3 else torch.zeros(6),)


compiled = torch.compile(step, backend="eager")
for number in range(4):
    result = compiled(*data(number))
    print(number, tuple(result.shape), f"{result.double().sum().item():.6f}")
