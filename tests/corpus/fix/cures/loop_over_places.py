# 2 to cure
import torch

torch.manual_seed(0)


def step(x):
    # which rows begin anew
    begins = torch.nonzero(x.amax(dim=1) > 1)
    count = x.shape[0]
    same = torch.zeros((count, count), device=x.device)
    last = 0
    for i in range(begins.shape[0]):
        place = begins[i, 0]
        if (place == 0) or (place == count - 1):
            same[place, place] = 1
        else:
            same[last : place + 1, last : place + 1] = 1
        last = place
    return same @ x


def data(number):
    return (torch.randn(6 + number % 2, 3),)


compiled = torch.compile(step, backend="eager")
with torch.no_grad():
    for number in range(4):
        result = compiled(*data(number))
        print(number, tuple(result.shape), f"{result.double().sum().item():.6f}")
