# global counter
# SEVERITY: S4_recompile
# LINE: `N += 1`
import torch

N = 0


def fn(x):
    global N
    N += 1
    return x * N


def make():
    return (torch.ones(4),)


CALLS = 3
