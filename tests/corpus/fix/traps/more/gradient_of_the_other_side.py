# the natural rewrite, which is wrong:
# - if x.sum() > 0:
# -     y = (x - x).sum().sqrt() + y
# + y = torch.where(x.sum() > 0, (x - x).sum().sqrt() + y, y)
import torch

torch.manual_seed(0)


def step(x):
    y = x * 2
    if x.sum() > 0:
        y = (x - x).sum().sqrt() + y
    return y * 3


def data(number):
    return (torch.randn(6).requires_grad_(),)


compiled = torch.compile(step, backend="eager")
for number in range(4):
    (x,) = data(number)
    compiled(x).sum().backward()
    print(number, f"{x.grad.sum().item():.6f}")
