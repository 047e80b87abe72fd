# 3 to cure
import torch

torch.manual_seed(0)


def step(x):
    print("begin")
    y = x * 2
    if y.sum() > 0:
        y = y + 1
    top = y.max().item()
    torch._dynamo.graph_break()
    return y * top


def data(number):
    return (torch.randn(6) + (1 if number % 2 else -1),)


compiled = torch.compile(step, backend="aot_eager")
for number in range(6):
    result = compiled(*data(number))
    print(number, tuple(result.shape), f"{result.double().sum().item():.6f}")
