# LBFGS: torch keeps Dynamo out of its step
# SEVERITY: S3_graph_break
import torch


def fn(opt, closure):
    opt.step(closure)


def make():
    p = torch.nn.Parameter(torch.ones(4))
    opt = torch.optim.LBFGS([p], max_iter=2)

    def closure():
        opt.zero_grad()
        loss = (p * p).sum()
        loss.backward()
        return loss

    return (opt, closure)
