# the natural rewrite, which is wrong:
# - if n.min() > 0 and (6 // n).sum() > 3:
# -     y = y + 1
# + y = torch.where(torch.logical_and(n.min() > 0, (6 // n).sum() > 3), y + 1, y)
import torch

torch.manual_seed(0)


def step(x, n):
    y = x * 2
    if n.min() > 0 and (6 // n).sum() > 3:
        y = y + 1
    return y.sin()


def data(number):
    return (torch.randn(6), torch.randint(1 if number < 3 else 0, 4, (6,)))


compiled = torch.compile(step, backend="eager")
for number in range(4):
    result = compiled(*data(number))
    print(number, tuple(result.shape), f"{result.double().sum().item():.6f}")
