# augmented
# SEVERITY: S5_no_cudagraph
# INPUT: L['x'] by `x += 1`
import torch


def fn(x):
    x += 1
    return x * 2


def make():
    return (torch.ones(4),)
