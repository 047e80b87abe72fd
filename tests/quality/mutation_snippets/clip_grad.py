# clip grad
# SEVERITY: S5_no_cudagraph
# INPUT: L['ps'][0].grad by `p.grad.mul_`
import torch


def fn(ps):
    for p in ps:
        p.grad.mul_(0.5)


def make():
    p = torch.nn.Parameter(torch.ones(4))
    p.grad = torch.ones(4)
    return ([p],)
