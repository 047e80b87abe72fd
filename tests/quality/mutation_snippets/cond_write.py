# cond write
# SEVERITY: S1_hard_failure
import torch


def fn(p, x, buf):
    def t(x):
        buf.add_(1)
        return x * 2

    def f(x):
        return x * 3

    return torch.cond(p, t, f, (x,))


def make():
    return (torch.tensor(True), torch.ones(4), torch.zeros(4))


CALLS = 1
