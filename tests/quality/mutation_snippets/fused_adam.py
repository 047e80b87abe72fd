# a fused optimizer: its kernel is called by eager code
# SEVERITY: S3_graph_break
import torch


def fn(opt):
    opt.zero_grad(set_to_none=False)
    opt.step()


def make():
    p = torch.nn.Parameter(torch.ones(4))
    p.grad = torch.ones(4)
    return (torch.optim.Adam([p], fused=True),)
