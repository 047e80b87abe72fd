# names
# SEVERITY: S4_recompile
# LINE: `self.names.append`
import torch


class M(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.names = []

    def forward(self, x):
        self.names.append("a")
        return x * len(self.names)


def fn(m, x):
    return m(x)


def make():
    return (M(), torch.ones(4))


CALLS = 3
