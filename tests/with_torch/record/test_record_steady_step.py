"""Once everything has compiled, recording runs nothing: a steady step calls the same functions as often as without us."""

import json

PROGRAM = """
import gc, json, sys
from collections import Counter

import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU(), torch.nn.Dropout(), torch.nn.Linear(8, 8))
optimizer = torch.optim.AdamW(model.parameters())
compiled = torch.compile(model, backend="aot_eager")
update = torch.compile(optimizer.step, backend="aot_eager")
calls = Counter()


@torch.compile(backend="aot_eager")
def loss_of(out):
    total = out.square().mean()
    torch._dynamo.graph_break()
    return total + 1


def step():
    optimizer.zero_grad()
    loss_of(compiled(torch.randn(4, 8))).backward()
    update()


def count(frame, event, function):
    if event == "call":
        calls[f"{frame.f_code.co_filename}:{frame.f_code.co_name}"] += 1
    elif event == "c_call":
        calls[f"{function.__module__}.{function.__qualname__}"] += 1


for _ in range(5):
    step()
gc.collect()
gc.disable()
torch.autograd.set_multithreading_enabled(False)
sys.setprofile(count)
for _ in range(3):
    step()
sys.setprofile(None)
print(json.dumps(calls, sort_keys=True))
"""


def test_a_steady_step_calls_what_it_called_without_us(run_plain, run_recorded):
    plain = run_plain(PROGRAM)
    recorded = run_recorded(PROGRAM)
    assert plain.returncode == recorded.result.exit_status == 0
    assert recorded.breaks, "the recorder must have listened"
    calls = json.loads(plain.stdout)
    assert sum(calls.values()) > 300, "the step must have been watched"
    assert json.loads(recorded.out) == calls
