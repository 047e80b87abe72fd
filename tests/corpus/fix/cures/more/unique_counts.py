# 1 to cure
import torch

torch.manual_seed(0)


def step(x):
    return torch.unique(x).float().sum() + x.sum()


def data(number):
    return (torch.randint(0, 4 + number, (6,)),)


compiled = torch.compile(step, backend="aot_eager")
for number in range(4):
    result = compiled(*data(number))
    print(number, tuple(result.shape), f"{result.double().sum().item():.6f}")
