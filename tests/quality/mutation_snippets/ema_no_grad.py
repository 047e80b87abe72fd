# ema no grad
# SEVERITY: S7_free
# INPUT: L['ema'] by `ema.lerp_`
import torch


def fn(ema, p):
    with torch.no_grad():
        ema.lerp_(p, 0.1)
    return (p * 2).sum()


def make():
    return (torch.nn.Parameter(torch.zeros(4)), torch.nn.Parameter(torch.ones(4)))
