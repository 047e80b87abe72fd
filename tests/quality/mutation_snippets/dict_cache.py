# dict cache
# SEVERITY: S5_no_cudagraph
# INPUT: L['cache']['k'] by `cache["k"].copy_`
import torch


def fn(cache, k):
    cache["k"].copy_(k)
    return cache["k"].sum()


def make():
    return ({"k": torch.zeros(4)}, torch.ones(4))
