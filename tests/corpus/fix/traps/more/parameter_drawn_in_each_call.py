# trap: the value is drawn at random in each call
# - weight = torch.nn.Parameter(torch.randn(6))
# + weight = WEIGHT
import torch

torch.manual_seed(0)
WEIGHT = torch.nn.Parameter(torch.zeros(6))


@torch.compile(backend="eager")
def step(x):
    weight = torch.nn.Parameter(torch.randn(6))
    return torch.mul(x, weight).sin()


for number in range(4):
    result = step(torch.randn(6))
    print(number, tuple(result.shape), f"{result.double().sum().item():.6f}")
