# 1 to cure
import torch

torch.manual_seed(0)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(6, 6)

    def forward(self, x):
        y = self.linear(x)
        if y.abs().max() > 2:
            y = torch.clamp(y, -2.0, 2.0)
        return torch.relu(y)


model = Net()


def data(number):
    return (torch.randn(4, 6) * (4 if number % 2 else 1),)


compiled = torch.compile(model, backend="aot_eager")
for number in range(4):
    result = compiled(*data(number))
    print(number, tuple(result.shape), f"{result.double().sum().item():.6f}")
