# running mean
# SEVERITY: S7_free
# INPUT: L['m']._buffers['mean'] by `self.mean.mul_`
import torch


class M(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x):
        self.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
        return x - self.mean


def fn(m, x):
    return m(x)


def make():
    return (M(), torch.ones(3, 4))
