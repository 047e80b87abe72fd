# the natural rewrite, which is wrong:
# - for width in widths:
# + for width in numbers:
import torch

torch.manual_seed(0)


def step(x):
    numbers = [2, 3]
    widths = torch.tensor(numbers, dtype=torch.long)
    widths += x.shape[0] % 2
    found = []
    for width in widths:
        found.append(x[:, :width].sum(1))
    return torch.stack(found)


def data(number):
    return (torch.randn(3 + 2 * number, 6),)


compiled = torch.compile(step, backend="eager")
for number in range(4):
    result = compiled(*data(number))
    print(number, tuple(result.shape), f"{result.double().sum().item():.6f}")
