# the natural rewrite, which is wrong:
# - if y.sum() > 0:
# -     y = y + 1
# -     BOX.count += 1
# + y = torch.where(y.sum() > 0, y + 1, y)
# + BOX.count += 1
import torch

torch.manual_seed(0)


class Box:
    count = 0


BOX = Box()


def step(x):
    y = x * 2
    if y.sum() > 0:
        y = y + 1
        BOX.count += 1
    return y.sin()


def data(number):
    return (torch.randn(6) + (1 if number % 2 else -1),)


compiled = torch.compile(step, backend="eager")
for number in range(4):
    result = compiled(*data(number))
    print(number, tuple(result.shape), f"{result.double().sum().item():.6f}")
print(BOX.count)
