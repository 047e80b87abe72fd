# 1 to cure: the epoch drives, and behind that stands a branch in the model, which is a selection: the model is compiled whole.
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(8, 8)

    def forward(self, x):
        h = self.inner(x)
        if h.sum() > 0:
            h = h * 2
        return h.relu()


def epoch(model, optimizer, batches):
    total = 0.0
    for x in batches:
        loss = model(x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total


def main():
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = torch.compile(epoch, backend="aot_eager")
    for _ in range(3):
        print(f"{step(model, optimizer, [torch.randn(4, 8) for _ in range(3)]):.4f}")


main()
