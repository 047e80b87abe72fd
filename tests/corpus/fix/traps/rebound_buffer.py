# the natural rewrite, which is wrong:
# - if x.sum() > 0:
# -     self.kept = self.kept + x
# + self.kept = torch.where(x.sum() > 0, self.kept + x, self.kept)
import torch

torch.manual_seed(0)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("kept", torch.zeros(6))

    def forward(self, x):
        if x.sum() > 0:
            self.kept = self.kept + x
        return self.kept * 2


def data(number):
    return (torch.randn(6) + (1 if number % 2 else -1),)


compiled = torch.compile(Net(), backend="eager")
for number in range(4):
    result = compiled(*data(number))
    print(number, tuple(result.shape), f"{result.double().sum().item():.6f}")
