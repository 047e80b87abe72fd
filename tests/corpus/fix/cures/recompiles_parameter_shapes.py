# 1 to cure
import torch

torch.manual_seed(0)


class Net(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(size), requires_grad=False)

    def forward(self, x):
        return x * self.weight.sum()


nets = [Net(size) for size in (2, 3, 4, 5)]


def step(x, number):
    return nets[number](x)


compiled = torch.compile(lambda net, x: net(x), backend="eager")
for number in range(4):
    result = compiled(nets[number], torch.randn(6))
    print(number, f"{result.double().sum().item():.6f}")
