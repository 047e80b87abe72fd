# the natural rewrite, which is wrong:
# - if x.min() > 0:
# -     y = y.sqrt()
# + y = torch.where(x.min() > 0, y.sqrt(), y)
import torch

torch.manual_seed(0)


def step(x):
    y = x * 2
    if x.min() > 0:
        y = y.sqrt()
    return y * 3


def data(number):
    return ((torch.rand(6) + (0.5 if number % 2 else -0.5)).requires_grad_(),)


compiled = torch.compile(step, backend="eager")
for number in range(4):
    (x,) = data(number)
    compiled(x).sum().backward()
    print(number, torch.isnan(x.grad).sum().item())
