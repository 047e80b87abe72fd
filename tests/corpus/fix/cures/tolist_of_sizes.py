# 1 to cure
import torch

torch.manual_seed(0)


def step(x):
    low, high = x.aminmax()
    pair = torch.stack([low, high]).tolist()
    return x * pair[0] + pair[1]


def data(number):
    return (torch.randn(6) + (1 if number % 2 else -1),)


compiled = torch.compile(step, backend="eager")
for number in range(4):
    result = compiled(*data(number))
    print(number, tuple(result.shape), f"{result.double().sum().item():.6f}")
