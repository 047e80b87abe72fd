# 1 to cure
import torch

torch.manual_seed(0)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(6))

    def forward(self, x):
        self.mean.data = self.mean.data * 0.9 + x * 0.1
        return x - self.mean


model = Net()


def data(number):
    return (torch.randn(6) + (1 if number % 2 else -1),)


compiled = torch.compile(model, backend="eager")
for number in range(4):
    result = compiled(*data(number))
    print(number, tuple(result.shape), f"{result.double().sum().item():.6f}")
