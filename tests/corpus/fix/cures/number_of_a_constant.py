# 1 to cure
import torch

torch.manual_seed(0)


@torch.compile(backend="eager")
def step(x):
    low = torch.tensor(0.25).item()
    return x.clamp(min=low) if x.dim() > 1 else x * low


for number in range(4):
    result = step(torch.randn(3, 6))
    print(number, tuple(result.shape), f"{result.double().sum().item():.6f}")
