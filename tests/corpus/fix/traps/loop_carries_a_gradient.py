# an operator for the loop would give no gradient
import torch

torch.manual_seed(0)
weight = torch.ones(6, requires_grad=True)


def step(x, weight):
    mask = torch.zeros(6, device=x.device)
    places = torch.nonzero(x > 0.5)
    for i in range(places.shape[0]):
        mask[places[i, 0]] = weight[places[i, 0]] * 2
    return x * mask


def data(number):
    return (torch.randn(6),)


compiled = torch.compile(step, backend="eager")
for number in range(4):
    weight.grad = None
    result = compiled(*data(number), weight)
    result.square().sum().backward()
    print(number, tuple(result.shape), f"{weight.grad.double().sum().item():.6f}")
