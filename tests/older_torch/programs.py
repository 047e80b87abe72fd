"""Programs with known truth that run on torch 2.6 and newer (Python 3.9 and newer), one after the other in one process.

A line that breaks the graph ends in `# breaks: <program>`, one that writes an input in `# writes: <program>`. Prints, as JSON, what torch
itself counted for each program: graphs handed to the back end and recompiles logged.
"""

import json
import logging

import torch

counted = {"graphs": 0}


def backend(gm, inputs):
    counted["graphs"] += 1
    return gm.forward


def compiled(fn, **options):
    return torch.compile(fn, backend=backend, **options)


x = torch.ones(3)


def healthy():
    net = compiled(torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2)))
    for _ in range(3):
        net(x).sum().backward()


def prints():
    def fn(x):
        x = x + 1
        print("", end="")  # breaks: prints
        return x * 2

    compiled(fn)(x)


def branches():
    def fn(x):
        if x.sum() > 0:  # breaks: branches
            x = x + 1
        return x * 2

    compiled(fn)(x)


def reads_a_scalar():
    def fn(x):
        return x * x.sum().item()  # breaks: reads_a_scalar

    compiled(fn)(x)


def breaks_in_a_loop():
    def fn(x):
        for _ in range(3):
            x = x + 1
            torch._dynamo.graph_break()  # breaks: breaks_in_a_loop
        return x

    compiled(fn)(x)


def callee(x):
    x = x + 1
    torch._dynamo.graph_break()  # breaks: calls_twice
    return x * 2


def calls_twice():
    compiled(lambda x: callee(x) + callee(x))(x)


@torch._dynamo.disable
def kept_out(x):
    return x + 1


def calls_disabled():
    def fn(x):
        return kept_out(x + 1) * 2  # breaks: calls_disabled

    compiled(fn)(x)


def sizes_change():
    def fn(x):
        return x * 2 + 1

    run = compiled(fn)
    for size in (3, 4, 5, 6):
        run(torch.ones(size))


class Counter(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = "a"

    def forward(self, x):
        return x * len(self.scale)


def attribute_changes():
    net = Counter()
    run = compiled(net)
    for text in ("a", "bb", "ccc"):
        net.scale = text
        run(x)


def mask_appears():
    def fn(x, mask=None):
        return x + 1 if mask is None else x * mask

    run = compiled(fn)
    run(x)
    run(x, x)


def reaches_the_limit():
    def fn(x, name):
        return x + len(name)

    run = compiled(fn)
    for number in range(12):
        run(x, "a" * number)


class Cached(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("cache", torch.zeros(2, 3))

    def forward(self, x):
        self.cache[0] = x  # writes: keeps_a_cache
        return self.cache.sum() + x


def keeps_a_cache():
    run = torch.compile(Cached(), backend="aot_eager")
    run(x)
    run(x)


def writes_an_input():
    def fn(x):
        x.add_(1)  # writes: writes_an_input
        return x * 2

    torch.compile(fn, backend="aot_eager")(torch.ones(5))


def backend_fails():
    def raises(gm, inputs):
        raise RuntimeError("planted: the back end fails")

    def fn(x):
        return x.cos()

    torch._dynamo.config.suppress_errors = True
    torch.compile(fn, backend=raises)(x)
    torch._dynamo.config.suppress_errors = False


PROGRAMS = (
    healthy,
    prints,
    branches,
    reads_a_scalar,
    breaks_in_a_loop,
    calls_twice,
    calls_disabled,
    sizes_change,
    attribute_changes,
    mask_appears,
    reaches_the_limit,
    keeps_a_cache,
    writes_an_input,
    backend_fails,
)


class Count(logging.Handler):
    recompiles = 0

    def emit(self, record):
        Count.recompiles += record.getMessage().startswith("Recompiling function")


if __name__ == "__main__":
    torch._logging.set_logs(recompiles=True)
    log = logging.getLogger("torch._dynamo.guards.__recompiles")
    log.handlers, log.propagate = [Count()], False
    said = {}
    for program in PROGRAMS:
        torch._dynamo.reset()
        counted["graphs"], Count.recompiles = 0, 0
        program()
        said[program.__name__] = {"graphs": counted["graphs"], "recompiles": Count.recompiles}
    print(json.dumps(said))
