# the natural rewrite, which is wrong:
# - y = copy.deepcopy(x) * 2
# + y = x.clone() * 2
import copy

import torch

torch.manual_seed(0)


def step(x):
    y = copy.deepcopy(x) * 2
    return y.detach() + x * 0 + y.sum() * 0 + (y * y)


def data(number):
    return (torch.randn(6).requires_grad_(),)


compiled = torch.compile(step, backend="eager")
for number in range(4):
    (x,) = data(number)
    compiled(x).sum().backward()
    print(number, f"{x.grad.sum().item():.6f}")
