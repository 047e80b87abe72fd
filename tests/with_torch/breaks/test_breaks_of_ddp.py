"""`torch.compile(DDP(net))`: what breaks is DDP's own code; with the model compiled inside nothing breaks and the buckets stay."""

import re

import pytest
import torch

from dynadiag.passes.find_graph_breaks import find_graph_breaks
from dynadiag.trace import load
from tests.recorded_here import recorded_here

SCRIPT = """
import sys
import torch
import torch.distributed as dist
from torch._dynamo.testing import CompileCounterWithBackend
from torch._dynamo.utils import counters
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=0, world_size=1)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(6)])

    def forward(self, x):
        return self.layers(x).relu()


def run(name, wrap):
    torch._dynamo.reset()
    counters.clear()
    backend = CompileCounterWithBackend("eager")
    torch.manual_seed(0)
    model = wrap(Net(), backend)
    for _ in range(3):
        loss = model(torch.ones(2, 512)).sum()
        loss.backward()
    print(name, len(backend.graphs), sum(counters["graph_break"].values()), loss.item())


run("outside", lambda net, backend: torch.compile(DDP(net, bucket_cap_mb=2), backend=backend))
run("inside", lambda net, backend: DDP(torch.compile(net, backend=backend), bucket_cap_mb=2))
torch._dynamo.config.optimize_ddp = False
run("unsplit", lambda net, backend: DDP(torch.compile(net, backend=backend), bucket_cap_mb=2))


def starts(x):
    work = dist.all_reduce(x, async_op=True)
    work.wait()
    return x + 1


def meets(x):
    dist.barrier()
    return x + 1


def reduces(x):
    dist.all_reduce(x)
    return x + 1


for each in (starts, meets, reduces):
    counters.clear()
    value = torch.compile(each, backend="eager")(torch.ones(2))
    print(each.__name__, 0, sum(counters["graph_break"].values()), value.sum().item())
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_ddps_own_breaks_end_with_the_model_compiled_inside(tmp_path, capfd):
    (tmp_path / "train.py").write_text(SCRIPT)
    with torch._dynamo.config.patch(optimize_ddp=torch._dynamo.config.optimize_ddp):  # the program turns it off
        recorded_here(tmp_path / "train.py", tmp_path / "run", str(tmp_path / "store"))
    counts = {name: rest.split() for name, rest in re.findall(r"^(\w+) (\d+ \d+ \S+)$", capfd.readouterr().out, re.MULTILINE)}
    assert int(counts["outside"][0]) == int(counts["inside"][0]) > int(counts["unsplit"][0]) == 1
    assert (int(counts["outside"][1]) > 0, counts["inside"][1]) == (True, "0")
    assert counts["outside"][2] == counts["inside"][2]
    result = find_graph_breaks(load(tmp_path / "run"))
    sites = [site for site in result.graph_breaks if site.category == "inside DistributedDataParallel"]
    assert len(sites) == 2
    assert [counts[name][1:] for name in ("starts", "meets", "reduces")] == [["2", "4.0"], ["1", "4.0"], ["0", "4.0"]]
    others = {site.own_frame.code: site for site in result.graph_breaks if site not in sites}
    assert {site.category for site in others.values()} == {"distributed call"}
    assert {code: [advice.slug for advice in site.advice] for code, site in others.items()} == {
        "work = dist.all_reduce(x, async_op=True)": ["collective-sync"],
        "work.wait()": ["collective-sync"],
        "dist.barrier()": [],
    }
    for site in sites:
        assert [advice.slug for advice in site.advice] == ["ddp-compile-inside"]
