# transpose
# SEVERITY: S3_graph_break
# INPUT: L['x'] by `x.transpose_`
import torch


def fn(x):
    x.transpose_(0, 1)
    return x + 1


def make():
    return (torch.ones(2, 4),)


CALLS = 1
