# the natural rewrite, which is wrong:
# - s = x.mean().item()
# + s = 0.0
import torch

torch.manual_seed(0)


def step(x):
    s = round(x.mean().item(), 0)
    s = x.mean().item()
    return x * s


def data(number):
    return (torch.randn(6) + (1 if number % 2 else -1),)


compiled = torch.compile(step, backend="eager")
for number in range(4):
    result = compiled(*data(number))
    print(number, tuple(result.shape), f"{result.double().sum().item():.6f}")
