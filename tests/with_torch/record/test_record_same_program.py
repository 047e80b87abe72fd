"""A recorded program is the same program: results, stdout, counters, RNG, search path."""

import json
import sys

STEADY = """
import gc, json, sys
from collections import Counter

import torch


def steady():
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU(), torch.nn.Dropout(), torch.nn.Linear(8, 8))
    optimizer = torch.optim.AdamW(net.parameters())
    compiled = torch.compile(net, backend="aot_eager")
    update = torch.compile(optimizer.step, backend="aot_eager")
    calls = Counter()

    @torch.compile(backend="aot_eager")
    def loss_of(out):
        total = out.square().mean()
        torch._dynamo.graph_break()
        return total + 1

    def one_step():
        optimizer.zero_grad()
        loss_of(compiled(torch.randn(4, 8))).backward()
        update()

    def count(frame, event, function):
        if event == "call":
            calls[f"{frame.f_code.co_filename}:{frame.f_code.co_name}"] += 1
        elif event == "c_call":
            calls[f"{function.__module__}.{function.__qualname__}"] += 1

    for _ in range(5):
        one_step()
    gc.collect()
    gc.disable()
    torch.autograd.set_multithreading_enabled(False)
    sys.setprofile(count)
    for _ in range(3):
        one_step()
    sys.setprofile(None)
    torch.autograd.set_multithreading_enabled(True)
    gc.enable()
    return calls


called = steady()
if len(sys.argv) > 1:
    with open(sys.argv[1], "w") as file:
        json.dump(called, file)
"""
PROGRAM = (
    STEADY
    + '''
import hashlib, json, random, sys
import torch
from torch._dynamo.utils import counters

torch._dynamo.reset()
counters.clear()
torch.manual_seed(0)
random.seed(0)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(16, 16)
        self.second = torch.nn.Linear(16, 16)
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x, scale=1.0):
        h = self.first(x)
        print("mid", h.shape)
        h = torch.relu(h) * scale
        if h.sum() > 0:
            h = h + 1
        self.count.add_(1)
        return self.second(h) * h.mean().item()


model = Model()
compiled = torch.compile(model, backend="aot_eager")
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
x = torch.randn(4, 16)
results = []


@torch.compile(backend="aot_eager")
def step(x):
    """The backward is compiled lazily while Dynamo's callback is live."""
    optimizer.zero_grad()
    loss = model.second(torch.nn.functional.dropout(model.first(x))).square().mean()
    loss.backward()
    optimizer.step()
    return loss


class Box:
    pass


@torch.compile(backend="eager")
def by_name(x, box):
    return x + len(box.name)


def no_tensors(number):
    return number + 1


for size in (4, 8, 8, 6):
    results.append(compiled(torch.randn(size, 16), scale=float(size)).sum().item())
for _ in range(40):
    results.append(step(x).item())
torch.compile(no_tensors, backend="eager")(3)
torch._dynamo.config.recompile_limit = 3
for number in range(6):
    box = Box()
    box.name = "a" * number
    results.append(by_name(x, box).sum().item())


def digest(data):
    return hashlib.sha256(data).hexdigest()


print(json.dumps({
    "results": [value.hex() for value in results],
    "counters": {str(group): {str(name): n for name, n in values.items()} for group, values in counters.items()},
    "torch_rng": digest(torch.get_rng_state().numpy().tobytes()),
    "python_rng": digest(repr(random.getstate()).encode()),
    "path": sys.path,
    "warned": sorted(str(key) for key in getattr(sys.modules["__main__"], "__warningregistry__", {})),
    "foreign": sorted({"rich", "typer", "dynadiag_cli"} & set(sys.modules)),
}))
'''
)


def test_a_recorded_program_computes_prints_and_counts_the_same(run_plain, run_recorded, tmp_path, monkeypatch):
    monkeypatch.delenv("DYNADIAG_TESTS_SHORT_PROCESSES")  # the first two end as anybody's process does
    plain = run_plain(PROGRAM, str(tmp_path / "plain.json"))
    recorded = run_recorded(PROGRAM, str(tmp_path / "recorded.json"))
    own_trace = tmp_path / "own_trace"
    environment = {"TORCH_TRACE": str(own_trace), "DYNADIAG_TESTS_SHORT_PROCESSES": "1"}
    profiled = run_recorded(PROGRAM, out=tmp_path / "profiled", cost=True, environment=environment)
    assert plain.returncode == recorded.result.exit_status == profiled.result.exit_status == 0
    assert recorded.out == plain.stdout
    assert profiled.out == plain.stdout
    facts = json.loads(plain.stdout.splitlines()[-1])
    assert facts["foreign"] == []
    assert facts["counters"]["frames"]["total"] > 10, "the program must exercise Dynamo"
    _check_completeness(recorded, facts)
    _check_cost(profiled)
    _check_own_trace(profiled, own_trace, sys.modules[run_plain.__module__].read_logs)
    _check_steady_step(*(json.loads((tmp_path / f"{name}.json").read_text()) for name in ("plain", "recorded")))


def _check_steady_step(plain, recorded):
    """Once everything has compiled, recording only counts the calls of what was compiled; else a step calls the same functions."""
    assert sum(plain.values()) > 300, "the step must have been watched"
    counted = [recorded.pop(name) for name in list(recorded) if name.endswith("eval_frame.py:dynadiag_stance")]
    assert counted == [number for name, number in plain.items() if name.endswith("eval_frame.py:_callback_from_stance")]
    assert recorded == plain


def _check_completeness(recorded, facts):
    assert len(recorded.breaks) >= 9
    assert recorded.named("dynadiag_exit")[0].content["counters"]["frames"] == facts["counters"]["frames"]
    assert set(recorded.named("dynadiag_hooks")[-1].content.values()) == {"ok"}
    assert recorded.problems("recorder") == []


def _check_own_trace(recorded, folder, read_logs):
    """The user's own TORCH_TRACE holds the same records in the same order, and none of ours."""
    theirs = [record.header for record in read_logs(folder) if record.artifact != "torch_version"]
    ours = [record.header for record in recorded.records if not str(record.artifact).startswith(("dynadiag", "torch_version"))]
    assert len(theirs) > 300
    assert [kind(header) for header in theirs] == [kind(header) for header in ours]


def kind(header):
    return next(iter(header)), header.get("artifact"), header.get("frame_id"), header.get("frame_compile_id"), header.get("attempt")


def _check_cost(profiled):
    (cost,) = [record.content for record in profiled.named("dynadiag_cost")]
    regions = {region["region"]: region for region in cost["regions"]}
    assert len(regions) > 3
    assert all(region["calls"] >= 1 and region["region_us"] > 0 for region in regions.values())
    with_graph = [region for region in regions.values() if region["graph_us"] > 0]
    assert with_graph
    assert all(region["graph_us"] <= region["region_us"] for region in with_graph)
    assert any(region["pregraph_us"] > 0 for region in with_graph)
    guards = [record.content for record in profiled.named("dynadiag_guard_cost")]
    assert guards and all(one["whole_us"] > 0 for one in guards) and any(one["parts"] for one in guards)
