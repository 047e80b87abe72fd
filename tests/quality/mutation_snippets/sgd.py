# sgd
# SEVERITY: S3_graph_break
# INPUT: L['self'].param_groups[0]['params'][0] by `opt.step()`
import torch


def fn(opt):
    opt.step()


def make():
    p = torch.nn.Parameter(torch.ones(4))
    p.grad = torch.ones(4)
    return (torch.optim.SGD([p], lr=0.1, momentum=0.9),)


CALLS = 3
