# 1 to cure
import torch

torch.manual_seed(0)


@torch.compile(backend="eager")
def step(x):
    weight = torch.nn.Parameter(torch.full((6,), 0.5))
    return torch.mul(x, weight).sin()


for number in range(4):
    result = step(torch.randn(6))
    print(number, tuple(result.shape), f"{result.double().sum().item():.6f}")
