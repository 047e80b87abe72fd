# nonlocal
# SEVERITY: S4_recompile
# LINE: `count += 1`
import torch


def outer():
    count = 0

    def fn(x):
        nonlocal count
        count += 1
        return x * count

    return fn


fn = outer()


def make():
    return (torch.ones(4),)


CALLS = 3
