# 1 to cure
import torch

torch.manual_seed(0)


def step(x):
    a, b, c, d, e, f = x.tolist()
    return x * a + b


def data(number):
    return (torch.randn(6),)


compiled = torch.compile(step, backend="aot_eager")
for number in range(4):
    result = compiled(*data(number))
    print(number, tuple(result.shape), f"{result.double().sum().item():.6f}")
