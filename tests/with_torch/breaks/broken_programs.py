"""Programs with known breaks, run one after the other in one process; a line that breaks is marked `# breaks: <program>`.

Prints torch's own count of graphs at the end.
"""

import logging
import sys

import torch
from torch._dynamo.utils import counters

log = logging.getLogger("quiet")
log.addHandler(logging.NullHandler())
log.propagate = False


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)

    def helper(self, x):
        log.warning("hello")  # breaks: method
        return x + 1

    def forward(self, x):
        return self.helper(self.linear(x)) * 2


def in_finally(x):
    try:
        x = x + 1
        print("in try")  # breaks: in_finally
        x = x * 2
    finally:
        x = x - 1
    return x  # noqa: RET504


def in_autocast(x):
    with torch.autocast("cpu"):
        x = x + 1
        print("in with")  # breaks: in_autocast
        x = x * 2
    return x  # noqa: RET504


def nested(x):
    def inner(y):
        def innermost(z):
            print("deep")  # breaks: nested
            return z + 1

        return innermost(y) * 2

    return inner(x) + inner(x)


@torch._dynamo.disable
def slow(x):
    return x + 1


def calls_disabled(x):
    return slow(x + 1) * 2  # breaks: calls_disabled


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        print("forward")  # breaks: custom_function
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


def custom_function(x):
    return Double.apply(x.requires_grad_()) + 1


def dynamic_shape(x):
    return x.nonzero() + 1  # breaks: dynamic_shape


def two_on_a_line(x):
    return x + 1, print("a"), x.sum().item()  # breaks: two_on_a_line


def recursion(x, n=2):
    if n == 0:
        print("leaf")  # breaks: recursion
        return x
    return recursion(x, n - 1) + 1


def loop(x):
    for _ in range(2):
        x = x + 1
        torch._dynamo.graph_break()  # breaks: loop
    return x


def scalar_in_lambda(x):
    read = lambda y: y.sum().item()  # breaks: scalar_in_lambda  # noqa: E731
    return read(x) + read(x)


weight = torch.nn.Parameter(torch.ones(3))
optimizer = torch.optim.AdamW([weight])


def on_default_device(x):
    s = x.mean().item()  # breaks: on_default_device
    return x * s


def train_step(x):
    optimizer.zero_grad()  # breaks: zero_grad
    loss = (x * weight).sum()
    loss.backward()  # breaks: backward
    optimizer.step()  # breaks: optimizer_step
    return loss


executed = {"torch": torch}
exec("def typed(x):\n    x = x + 1\n    torch._dynamo.graph_break()\n    return x * 2\n", executed)


def whole(x):
    x = x + 1
    print("never")  # breaks: whole
    return x


def changes(x):
    return x + 1


def refused(x):
    return x * 3


def refused_loudly(x):
    return x * 4


def refuse(graph, inputs):
    raise RuntimeError("refused by the test")


def run(function, *args, **options):
    try:
        torch.compile(function, **{"backend": "eager"} | options)(*args)
    except Exception as error:
        print("raised", type(error).__name__, file=sys.stderr)


def main():
    programs = [Net(), in_finally, in_autocast, nested, calls_disabled, custom_function, dynamic_shape, two_on_a_line, recursion, loop]
    programs += [scalar_in_lambda, train_step, executed["typed"]]
    for function in programs:
        run(function, torch.ones(3))
    torch.set_default_device("cpu")
    run(on_default_device, torch.ones(3))
    torch.set_default_device(None)
    run(whole, torch.ones(3), fullgraph=True)
    torch._dynamo.config.recompile_limit = 2
    compiled = torch.compile(changes, backend="eager", dynamic=False)
    for size in range(2, 6):
        compiled(torch.ones(size))
    torch._dynamo.config.suppress_errors = True
    run(refused, torch.ones(3), backend=refuse)
    torch._dynamo.config.suppress_errors = False
    run(refused_loudly, torch.ones(3), backend=refuse)
    print("graphs", counters["stats"]["unique_graphs"])


if __name__ == "__main__":
    main()
