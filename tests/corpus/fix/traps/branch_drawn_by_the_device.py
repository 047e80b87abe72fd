# the natural rewrite, which is wrong:
# - if x.sum() > 0:
# -     y = torch.nn.functional.dropout(y, 0.5)
# + def if_true():
# +     return (torch.nn.functional.dropout(y, 0.5),)
# + def if_false():
# +     return (y,)
# + (y,) = torch.cond(x.sum() > 0, if_true, if_false)
import torch

torch.manual_seed(0)


def step(x):
    y = x * 2
    if x.sum() > 0:
        y = torch.nn.functional.dropout(y, 0.5)
    return y.sin()


def data(number):
    return (torch.randn(6) + (1 if number % 2 else -1),)


compiled = torch.compile(step, backend="eager")
for number in range(4):
    result = compiled(*data(number))
    print(number, tuple(result.shape), f"{result.double().sum().item():.6f}")
