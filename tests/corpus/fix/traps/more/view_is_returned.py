# the natural rewrite, which is wrong:
# - if x.sum() > 0:
# -     y = y + 1
# + y = torch.where(x.sum() > 0, y + 1, y)
import torch

torch.manual_seed(0)


def step(x):
    y = x[1:]
    if x.sum() > 0:
        y = y + 1
    return y


def data(number):
    return (torch.randn(6) + (1 if number % 2 else -1),)


compiled = torch.compile(step, backend="eager")
for number in range(4):
    (x,) = data(number)
    compiled(x).zero_()
    print(number, f"{x.sum().item():.6f}")
