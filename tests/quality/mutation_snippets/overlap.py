# overlap
# SEVERITY: S5_no_cudagraph S6_extra_copy
# INPUT: L['x'] by `x.mul_`
import torch


def fn(x, y):
    x.mul_(2)
    return x + y


def make():
    b = torch.ones(8)
    return (b[:4], b[2:6])


CALLS = 1
