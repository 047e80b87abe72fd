# 1 to cure
import torch

torch.manual_seed(0)


def step(x, counts):
    return torch.repeat_interleave(x, counts).sum() + x


def data(number):
    return (
        torch.randn(3),
        torch.tensor([1, 2, 3]),
    )


compiled = torch.compile(step, backend="eager")
for number in range(4):
    result = compiled(*data(number))
    print(number, tuple(result.shape), f"{result.double().sum().item():.6f}")
