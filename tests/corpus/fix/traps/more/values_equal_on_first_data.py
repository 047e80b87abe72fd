# the natural rewrite, which is wrong:
# - if y.sum() > 100:
# -     y = y + int(y.sum())
# + y = y
import torch

torch.manual_seed(0)


def step(x):
    y = x * 2
    if y.sum() > 100:
        y = y + int(y.sum())
    return y.sin()


def data(number):
    return (torch.randn(6) if number < 3 else torch.randn(6) + 50,)


compiled = torch.compile(step, backend="eager")
for number in range(4):
    result = compiled(*data(number))
    print(number, tuple(result.shape), f"{result.double().sum().item():.6f}")
