# checkpoint counter
# SEVERITY: S3_graph_break
import torch
from torch.utils.checkpoint import checkpoint


class M(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = torch.nn.Linear(4, 4)
        self.n = 0

    def body(self, x):
        self.n += 1
        return torch.sin(self.lin(x))

    def forward(self, x):
        return checkpoint(self.body, x, use_reentrant=False).sum()


def fn(m, x):
    return m(x)


def make():
    return (M(), torch.ones(2, 4))


CALLS = 1
