# view slice
# SEVERITY: S5_no_cudagraph
# INPUT: L['x'] by `x.view(-1)`
import torch


def fn(x):
    x.view(-1)[2:4].zero_()
    return x * 2


def make():
    return (torch.ones(2, 4),)
