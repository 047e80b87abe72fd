# the natural rewrite, which is wrong:
# - if x.sum() > 0:
# -     low = x.mean()
# -     y = x - low
# + taken = x.sum() > 0
# + low_if_true = x.mean()
# + y_if_true = x - low_if_true
# + y = torch.where(taken, y_if_true, y)
import torch

torch.manual_seed(0)


def step(x):
    y = x
    if x.sum() > 0:
        low = x.mean()
        y = x - low
    y.add_(1)
    return y * 2


def data(number):
    return (torch.randn(6) + (1 if number % 2 else -1),)


compiled = torch.compile(step, backend="eager")
for number in range(4):
    (x,) = data(number)
    result = compiled(x)
    print(number, f"{result.double().sum().item():.6f} {x.double().sum().item():.6f}")
