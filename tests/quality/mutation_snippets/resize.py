# resize
# SEVERITY: S3_graph_break
# INPUT: L['x'] by `x.resize_`
import torch


def fn(x):
    x.resize_(8)
    return x + 1


def make():
    return (torch.ones(4),)


CALLS = 1
