# 1 to cure
import torch

torch.manual_seed(0)


weight = torch.ones(6, requires_grad=True)


def step(x):
    y = x * weight
    if y.sum() > 0:
        y = y / y.abs().sum()
    return y.sin()


compiled = torch.compile(step, backend="aot_eager")
for number in range(4):
    result = compiled(torch.randn(6) + (1 if number % 2 else -1))
    result.sum().backward()
    print(number, f"{result.double().sum().item():.6f} {weight.grad.double().sum().item():.6f}")
