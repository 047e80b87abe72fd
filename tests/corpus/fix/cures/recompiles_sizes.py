# 0 to cure
import torch

torch.manual_seed(0)


def step(x):
    return x.sin() + 1


def data(number):
    return (torch.randn(6 + number),)


compiled = torch.compile(step, backend="eager")
for number in range(4):
    x = data(number)[0]
    result = compiled(x)
    print(number, f"{result.sum().item():.6f}")
