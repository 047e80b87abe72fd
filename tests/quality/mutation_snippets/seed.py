# seed
# SEVERITY: S3_graph_break
# LINE: `torch.manual_seed`
import torch


def fn(x):
    torch.manual_seed(0)
    return x + torch.rand(4)


def make():
    return (torch.ones(4),)


CALLS = 1
