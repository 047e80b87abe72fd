# 1 to cure
import torch

torch.manual_seed(0)


class Spans(torch.nn.Module):
    def forward(self, x, words: int):
        """Which words a mark reaches back to."""
        marks = (x > 1).any(dim=1)
        reach = torch.zeros_like(x)
        row = 0
        while row < words:
            if marks[row]:
                reach[row].fill_(1.0)
                reach[row, row % 3] = 2.0
            row += 1
        return x * reach


def data(number):
    return torch.randn(6, 3), 6


compiled = torch.compile(Spans(), backend="eager")
for number in range(4):
    result = compiled(*data(number))
    print(number, tuple(result.shape), f"{result.double().sum().item():.6f}")
