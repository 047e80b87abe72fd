# helper
# SEVERITY: S5_no_cudagraph
# INPUT: L['x'] by `b.mul_`
import torch


def scale(b):
    b.mul_(2)


def fn(x):
    y = x + 1
    scale(x)
    return y


def make():
    return (torch.ones(4),)
