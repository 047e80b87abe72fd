# the natural rewrite, which is wrong:
# - s = x.mean().item()
# + s = x.mean().detach()
import torch

torch.manual_seed(0)


LAST = {}


def step(x):
    s = x.mean().item()
    LAST["mean"] = s
    return x * s


def data(number):
    return (torch.randn(6),)


compiled = torch.compile(step, backend="eager")
for number in range(4):
    result = compiled(*data(number))
    print(number, tuple(result.shape), f"{result.double().sum().item():.6f}")
print(type(LAST["mean"]).__name__)
