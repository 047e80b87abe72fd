# the natural rewrite, which is wrong:
# - if y.sum() > 0:
# -     y = note(y)
# + y = torch.where(y.sum() > 0, note(y), y)
import torch

torch.manual_seed(0)


SEEN = []


def note(y):
    SEEN.append(1)
    return y + 1


def step(x):
    y = x * 2
    if y.sum() > 0:
        y = note(y)
    return y.sin()


def data(number):
    return (torch.randn(6) + (1 if number % 2 else -1),)


compiled = torch.compile(step, backend="eager")
for number in range(4):
    result = compiled(*data(number))
    print(number, tuple(result.shape), f"{result.double().sum().item():.6f}")
print(len(SEEN))
