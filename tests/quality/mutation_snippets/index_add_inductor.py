# index add inductor
# SEVERITY: S5_no_cudagraph
# INPUT: L['acc'] by `acc.index_add_`
import torch


def fn(acc, idx, v):
    acc.index_add_(0, idx, v)
    return acc.sum()


def make():
    return (torch.zeros(1024), torch.tensor([1, 2]), torch.ones(2))


BACKENDS = ["inductor"]
