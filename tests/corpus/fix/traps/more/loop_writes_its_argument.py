# an operator for the loop would write its argument, which is the caller's
import torch

torch.manual_seed(0)


def step(x):
    places = torch.nonzero(x > 0.5)
    for i in range(places.shape[0]):
        x[places[i, 0]] = 2.0
    return x * 2


def data(number):
    return (torch.randn(6),)


compiled = torch.compile(step, backend="eager")
for number in range(4):
    result = compiled(*data(number))
    print(number, tuple(result.shape), f"{result.double().sum().item():.6f}")
