# 1 to cure
import torch
from torch import nn

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(5, 7)
        self.norm = nn.BatchNorm1d(7)
        self.last = nn.Linear(7, 2)

    def forward(self, x):
        return self.last(self.norm(self.first(x)).relu())


net = Net()
optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)


def train_step(x):
    optimizer.zero_grad()
    loss = net(x).square().mean()
    loss.backward()
    optimizer.step()
    return loss.detach()


step = torch.compile(train_step, backend="aot_eager")
for number in range(4):
    print(number, f"{step(torch.randn(6, 5)).item():.6f}")
