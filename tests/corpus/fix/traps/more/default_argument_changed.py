# the natural rewrite, which is wrong:
# - if y.sum() > 0:
# -     seen.append(1)
# + seen.append(1)
import torch

torch.manual_seed(0)


def step(x, seen=[]):
    y = x * 2
    if y.sum() > 0:
        seen.append(1)
    return y + len(seen)


def data(number):
    return (torch.randn(6) + (1 if number % 2 else -1),)


compiled = torch.compile(step, backend="eager")
for number in range(4):
    result = compiled(*data(number))
    print(number, tuple(result.shape), f"{result.double().sum().item():.6f}")
