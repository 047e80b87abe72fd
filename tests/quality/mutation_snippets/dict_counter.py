# dict counter
# SEVERITY: S4_recompile
# LINE: `self.calls["n"] +=`
import torch


class M(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = {"n": 0}

    def forward(self, x):
        self.calls["n"] += 1
        return x * self.calls["n"]


def fn(m, x):
    return m(x)


def make():
    return (M(), torch.ones(4))


CALLS = 3
