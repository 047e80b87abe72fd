# object attribute
# SEVERITY: S5_no_cudagraph
# INPUT: L['s'].k by `s.k.index_copy_`
import torch


class State:
    pass


def fn(s, pos, k):
    s.k.index_copy_(0, pos, k)
    return s.k.sum()


def make():
    s = State()
    s.k = torch.zeros(8, 4)
    return (s, torch.tensor([1]), torch.ones(1, 4))
