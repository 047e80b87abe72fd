#!/usr/bin/env bash
# torch 2.15.0, munch 4.0.0, python-box 8.0.0, addict 2.4.0.
# Guess: a dictionary with attribute access makes no difference to Dynamo, or breaks the graph where it is read.
# Seen:  it depends on the library. With addict the function is one graph. With python-box (compiled with Cython), and with a Munch inside of
#        a Munch, nothing of the function is compiled: no graph reaches the backend, counters["graph_break"] stays empty, and no warning
#        appears. Only fullgraph=True raises Unsupported.
# Met by: models that keep their configuration as self.cfg and read it in forward().
. "$(dirname "$0")/common.sh"
install torch==2.15.0 munch==4.0.0 python-box==8.0.0 addict==2.4.0
run_program <<'PROGRAM'
import addict
import box
import munch
import torch
from torch._dynamo.utils import counters

SETTINGS = {"model": {"scale": 2.0}}
seen = {}


class Model(torch.nn.Module):
    def __init__(self, settings):
        super().__init__()
        self.settings = settings

    def forward(self, x):
        return (x * self.settings.model.scale).sin()


for make in (addict.Dict, munch.munchify, box.Box):
    model = Model(make(SETTINGS))
    torch._dynamo.reset()
    counters.clear()
    torch.compile(model, backend="eager")(torch.ones(1))
    seen[make.__module__.partition(".")[0]] = counters["stats"].get("unique_graphs", 0), sum(counters["graph_break"].values())
    torch._dynamo.reset()
    try:
        torch.compile(model, backend="eager", fullgraph=True)(torch.ones(1))
    except torch._dynamo.exc.Unsupported as error:
        print(make.__name__, "fullgraph=True:", str(error).splitlines()[0])
print("graphs, breaks:", seen)
assert seen == {"addict": (1, 0), "munch": (0, 0), "box": (0, 0)}
PROGRAM
