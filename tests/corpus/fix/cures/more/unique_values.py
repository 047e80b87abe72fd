# 1 to cure
import torch

torch.manual_seed(0)


def step(x):
    return torch.unique(x).sum() + x


def data(number):
    return (torch.randint(0, 5, (6,)),)


compiled = torch.compile(step, backend="eager")
for number in range(4):
    result = compiled(*data(number))
    print(number, tuple(result.shape), f"{result.double().sum().item():.6f}")
