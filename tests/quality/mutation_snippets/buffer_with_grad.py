# buffer with grad
# SEVERITY: S7_free
# INPUT: L['m']._buffers['acc'] by `self.acc.add_`
import torch


class M(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = torch.nn.Linear(4, 4)
        self.register_buffer("acc", torch.zeros(4))

    def forward(self, x):
        y = self.lin(x)
        self.acc.add_(y.mean(0).detach())
        return y.sum()


def fn(m, x):
    return m(x)


def make():
    return (M(), torch.ones(3, 4))
