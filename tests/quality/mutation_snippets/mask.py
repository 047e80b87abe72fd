# mask
# SEVERITY: S5_no_cudagraph
# INPUT: L['x'] by `x[m] = 0`
import torch


def fn(x, m):
    x[m] = 0
    return x * 2


def make():
    return (torch.ones(4), torch.tensor([True, False, True, False]))
