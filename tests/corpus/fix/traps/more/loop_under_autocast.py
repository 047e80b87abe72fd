# an operator for the loop would run its sums in full precision: autocast is not told to it
import torch

torch.manual_seed(0)


def step(x):
    found = torch.zeros(6, device=x.device)
    places = torch.nonzero(x.abs() > 0.2)
    for i in range(places.shape[0]):
        found[places[i, 0]] = (x[None] @ x[:, None]).sum()
    return found * x


def data(number):
    return (torch.randn(6),)


compiled = torch.compile(step, backend="eager")
for number in range(4):
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        result = compiled(*data(number))
    print(number, tuple(result.shape), f"{result.double().sum().item():.6f}")
