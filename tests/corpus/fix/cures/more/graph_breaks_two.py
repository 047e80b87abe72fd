# 0 to cure
import torch

torch.manual_seed(0)


def step(x):
    y = x * 2
    torch._dynamo.graph_break()
    z = y.sin()
    torch._dynamo.graph_break()
    return z + y


def data(number):
    return (torch.randn(6) + (1 if number % 2 else -1),)


compiled = torch.compile(step, backend="eager")
for number in range(4):
    result = compiled(*data(number))
    print(number, tuple(result.shape), f"{result.double().sum().item():.6f}")
