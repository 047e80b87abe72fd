# 2 to cure
import torch

torch.manual_seed(0)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(6, 6)

    def forward(self, x):
        y = self.first(x)
        print("in the model")
        if y.sum() > 0:
            y = y * 0.5
        return y


model = Net().eval().requires_grad_(False)


def data(number):
    return (torch.randn(6) + (1 if number % 2 else -1),)


compiled = torch.compile(model, backend="eager")
for number in range(4):
    result = compiled(*data(number))
    print(number, tuple(result.shape), f"{result.double().sum().item():.6f}")
