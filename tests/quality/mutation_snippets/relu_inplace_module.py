# relu inplace module
# SEVERITY: S7_free
import torch


class M(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(inplace=True))

    def forward(self, x):
        return self.net(x).sum()


def fn(m, x):
    return m(x)


def make():
    return (M(), torch.ones(2, 4))
