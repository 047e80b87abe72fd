# the natural rewrite, which is wrong:
# - if x.sum() > 0:
# -     x = x * 2
# + x = torch.where(x.sum() > 0, x * 2, x)
import torch

torch.manual_seed(0)


def step(x):
    if x.sum() > 0:
        x = x * 2
    x.add_(1)
    return x


def data(number):
    return (torch.randn(6) + (1 if number % 2 else -1),)


compiled = torch.compile(step, backend="eager")
for number in range(4):
    (x,) = data(number)
    compiled(x)
    print(number, f"{x.sum().item():.6f}")
