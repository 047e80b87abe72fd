# the natural rewrite, which is wrong:
# - s = x.mean().item()
# + s = x.mean()
import torch

torch.manual_seed(0)


def step(x):
    s = x.mean().item()
    return x * s


def data(number):
    return (torch.randn(6).requires_grad_(),)


compiled = torch.compile(step, backend="eager")
for number in range(4):
    (x,) = data(number)
    compiled(x).sum().backward()
    print(number, f"{x.grad.sum().item():.6f}")
