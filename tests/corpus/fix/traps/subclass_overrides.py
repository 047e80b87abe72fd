# the natural rewrite, which is wrong:
# - if y.sum() > 0:
# -     y = self.change(y)
# + y = torch.where(y.sum() > 0, self.change(y), y)
import torch

torch.manual_seed(0)


class Base(torch.nn.Module):
    def change(self, y):
        return y + 1

    def forward(self, x):
        y = x * 2
        if y.sum() > 0:
            y = self.change(y)
        return y.sin()


class Counting(Base):
    calls = 0

    def change(self, y):
        Counting.calls += 1
        return y + Counting.calls


def data(number):
    return (torch.randn(6) + (1 if number % 2 else -1),)


compiled = torch.compile(Counting(), backend="eager")
for number in range(4):
    result = compiled(*data(number))
    print(number, tuple(result.shape), f"{result.double().sum().item():.6f}")
