# the natural rewrite, which is wrong:
# - if n > 2.0:
# -     x = x / n
# + x = torch.where(n > 2.0, x / n, x)
import torch

torch.manual_seed(0)


def step(x):
    n = x.norm()
    if n > 2.0:
        x = x / n
    return x * 3


def data(number):
    return (torch.randn(6).requires_grad_(),)


compiled = torch.compile(step, backend="eager")
for number in range(4):
    (x,) = data(number)
    compiled(x).sum().backward()
    print(number, f"{x.grad.sum().item():.5f}")
