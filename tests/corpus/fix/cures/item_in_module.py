# 1 to cure
import torch

torch.manual_seed(0)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor(2.0), requires_grad=False)

    def forward(self, x):
        return x * self.scale.item()


model = Net()


def data(number):
    return (torch.randn(6) + (1 if number % 2 else -1),)


compiled = torch.compile(model, backend="aot_eager")
for number in range(4):
    result = compiled(*data(number))
    print(number, tuple(result.shape), f"{result.double().sum().item():.6f}")
