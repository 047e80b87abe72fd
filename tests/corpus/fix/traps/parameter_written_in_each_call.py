# trap: the value is written to, so the next call would begin with another one
import torch

torch.manual_seed(0)


@torch.compile(backend="eager")
def step(x):
    weight = torch.nn.Parameter(torch.full((6,), 0.5), requires_grad=False)
    weight += x
    return weight * 2


for number in range(4):
    result = step(torch.randn(6))
    print(number, tuple(result.shape), f"{result.double().sum().item():.6f}")
