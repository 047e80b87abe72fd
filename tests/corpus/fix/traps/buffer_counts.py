# the natural rewrite, which is wrong:
# - if x.sum() > 0:
# -     self.seen += 1
# + self.seen += 1
import torch

torch.manual_seed(0)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.seen = 0

    def forward(self, x):
        if x.sum() > 0:
            self.seen += 1
        return x * 2


def data(number):
    return (torch.randn(6) + (1 if number % 2 else -1),)


compiled = torch.compile(Net(), backend="eager")
for number in range(4):
    result = compiled(*data(number))
    print(number, tuple(result.shape), f"{result.double().sum().item():.6f}")
