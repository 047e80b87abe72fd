# the natural rewrite, which is wrong:
# - s = STATE.item()
# + s = STATE.detach()
import torch

torch.manual_seed(0)


STATE = torch.ones(())


def bump(x):
    STATE.add_(x.sum())


def step(x):
    s = STATE.item()
    bump(x)
    return x * s


def data(number):
    return (torch.randn(6),)


compiled = torch.compile(step, backend="eager")
for number in range(4):
    result = compiled(*data(number))
    print(number, tuple(result.shape), f"{result.double().sum().item():.6f}")
