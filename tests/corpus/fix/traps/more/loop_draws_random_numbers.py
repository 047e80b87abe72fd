# an operator for the loop would draw other random numbers
import torch

torch.manual_seed(0)


def step(x):
    mask = torch.zeros(6, device=x.device)
    places = torch.nonzero(x > 0.5)
    for i in range(places.shape[0]):
        mask[places[i, 0]] = torch.rand(1).sum()
    return x * mask


def data(number):
    return (torch.randn(6),)


compiled = torch.compile(step, backend="eager")
for number in range(4):
    result = compiled(*data(number))
    print(number, tuple(result.shape), f"{result.double().sum().item():.6f}")
