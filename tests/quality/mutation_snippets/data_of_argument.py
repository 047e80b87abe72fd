# data of argument
# SEVERITY: S6_extra_copy
# INPUT: L['w'] by `w.data.mul_`
import torch


def fn(w, x):
    w.data.mul_(0.5)
    return (w * x).sum()


def make():
    return (torch.ones(4, requires_grad=True), torch.ones(4))
