# the natural rewrite, which is wrong:
# - if y.sum() > 0:
# -     raise ValueError("positive")
# + torch._assert_async(torch.logical_not(y.sum() > 0), "positive")
import torch

torch.manual_seed(0)


def step(x):
    y = x * 2
    if y.sum() > 0:
        raise ValueError("positive")
    return y.sin()


def data(number):
    return (torch.randn(6) + (1 if number % 2 else -1),)


compiled = torch.compile(step, backend="eager")
for number in range(4):
    try:
        print(number, compiled(*data(number)).shape)
    except ValueError as error:
        print(number, error)
