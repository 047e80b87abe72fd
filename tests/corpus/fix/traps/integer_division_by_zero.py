# the natural rewrite, which is wrong:
# - if n.min() > 0:
# -     y = y // n
# + y = torch.where(n.min() > 0, y // n, y)
import torch

torch.manual_seed(0)


def step(x, n):
    y = x * 2
    if n.min() > 0:
        y = y // n
    return y + 1


def data(number):
    return (torch.arange(6), torch.randint(1 if number < 3 else 0, 4, (6,)))


compiled = torch.compile(step, backend="eager")
for number in range(4):
    result = compiled(*data(number))
    print(number, tuple(result.shape), f"{result.double().sum().item():.6f}")
