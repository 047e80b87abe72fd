"""Small programs of strangers, as far as what was once said of them was false or missing. Run as a script: FOLDER records each below it.

A program prints what it computes; with `cure` it runs a second time under that option. `tests/quality/test_advice_truth.py` reads the runs.
"""

import contextlib
import io
import itertools
import json
import sys
from collections import deque
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

import dynadiag

PROGRAMS = {}
CURES = {}


def program(cure=None):
    def add(function):
        PROGRAMS[function.__name__] = function
        CURES[function.__name__] = cure
        return function

    return add


def compiled(target):
    return torch.compile(target, backend="eager")


@program()
def pads_odd_sizes():
    class PadNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.c = nn.Conv2d(1, 2, 3, stride=2, padding=1)

        def forward(self, x):
            h, w = x.shape[-2:]
            if h % 2 or w % 2:
                x = F.pad(x, (0, w % 2, 0, h % 2))
            return torch.relu(self.c(x))[..., :h, :w]

    f = compiled(PadNet())
    for h, w in ((8, 6), (9, 6), (10, 7), (12, 12)):
        out = f(torch.randn(1, 1, h, w))
        print(out.sum().item())


@program()
def prints_its_shape_once():
    class Sub(nn.Module):
        def __init__(self):
            super().__init__()
            self.c = nn.Conv1d(4, 8, 3, stride=2)
            self.verbose = True

        def forward(self, x):
            y = torch.relu(self.c(x))
            if self.verbose:
                print("subsampled to", y.shape[-1])
                self.verbose = False
            return y.mean(-1)

    f = compiled(Sub())
    for n in (40, 52, 64):
        wav = torch.randn(2, 4, n)
        print(f(wav).sum().item())


@program()
def crops_that_are_equal_at_first():
    @compiled
    def areas(a, b):
        return a.sum() * b.shape[1] + b.sum() * a.shape[1]

    for n, m in ((8, 8), (9, 10)):
        a, b = torch.ones(3, n), torch.ones(3, m)
        print(areas(a, b).item())


@program("allow_unspec_int_on_nn_module")
def warms_up_for_three_calls():
    class WarmNorm(nn.Module):
        def __init__(self, d, warm=3):
            super().__init__()
            self.warm, self.n_calls = warm, 0
            self.register_buffer("mu", torch.zeros(d))

        def forward(self, x):
            self.n_calls += 1
            m = x.mean(0)
            if self.training:
                self.mu = 0.9 * self.mu + 0.1 * m.detach()
            return x - (m if self.n_calls <= self.warm else self.mu)

    f = compiled(nn.Sequential(nn.Linear(4, 6), WarmNorm(6), nn.ReLU()))
    for _ in range(12):
        print(f(torch.randn(5, 4)).sum().item())


@program("allow_unspec_int_on_nn_module")
def corrects_its_bias():
    class Running(nn.Module):
        def __init__(self, d, beta=0.9):
            super().__init__()
            self.register_buffer("m", torch.zeros(d))
            self.beta, self.t = beta, 0

        def forward(self, x):
            self.t += 1
            with torch.no_grad():
                self.m.mul_(self.beta).add_(x.mean(0), alpha=1 - self.beta)
            return x - self.m / (1 - self.beta**self.t)

    f = compiled(Running(3))
    for _ in range(11):
        print(f(torch.randn(4, 3)).sum().item())


@program("allow_unspec_int_on_nn_module")
def fills_a_ring_buffer():
    class Queue(nn.Module):
        def __init__(self, d=4, size=16):
            super().__init__()
            self.register_buffer("queue", torch.zeros(d, size))
            self.ptr, self.size = 0, size

        def forward(self, keys):
            n = keys.size(0)
            self.queue[:, self.ptr : self.ptr + n] = keys.t()
            self.ptr = (self.ptr + n) % self.size
            return self.queue.sum()

    f = compiled(Queue())
    for _ in range(6):
        print(f(torch.randn(4, 4)).item())


@program("allow_unspec_int_on_nn_module")
def writes_one_column_a_call():
    class Cache(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("k", torch.zeros(2, 16))
            self.pos = 0

        def forward(self, x):
            self.k[:, self.pos] = x
            self.pos += 1
            return self.k.sum()

    f = compiled(Cache())
    for _ in range(6):
        print(f(torch.randn(2)).item())


@program()
def checks_in_a_helper():
    def normalise(x, eps):
        n = x.norm(dim=1, keepdim=True)
        if (n < eps).any():
            raise ValueError("zero row")
        return x / n

    @compiled
    def similarity(a, b):
        return normalise(a, 1e-6) @ normalise(b, 1e-6).t()

    for _ in range(3):
        print(similarity(torch.randn(4, 5), torch.randn(4, 5)).sum().item())


@program("capture_scalar_outputs")
def logs_under_written_names():
    class Module(nn.Module):
        def __init__(self):
            super().__init__()
            self.net, self.logged = nn.Linear(4, 2), {}

        def log(self, name, value, prog_bar=False):
            self.logged[name] = float(value)

        def training_step(self, x):
            logits = self.net(x)
            self.log("loss", logits.sum(), prog_bar=True)
            self.log("acc", logits.abs().mean())
            return logits.sum()

    module = Module()
    step = torch.compile(module.training_step, backend="eager")
    for _ in range(3):
        print(step(torch.randn(8, 4)).item(), module.logged)


@program()
def logs_under_names_of_each_call():
    logged = {}

    @compiled
    def step(x, name):
        y = x * 2
        logged[name] = y.sum().item()
        return y

    for name in "abc":
        print(step(torch.randn(4), name).sum().item())


@program("trace_autograd_ops")
def differentiates_twice():
    net = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1))

    @compiled
    def residual(x):
        x = x.requires_grad_()
        u = net(x)
        du = torch.autograd.grad(u.sum(), x, create_graph=True)[0]
        d2u = torch.autograd.grad(du.sum(), x, create_graph=True)[0]
        return (d2u + u).pow(2).mean()

    for _ in range(2):
        net.zero_grad()
        loss = residual(torch.linspace(0, 3, 20)[:, None])
        loss.backward()
        print(loss.item(), net[0].weight.grad.sum().item())


@program()
def skips_a_loss_that_is_not_finite():
    net = nn.Linear(3, 1)

    @compiled
    def safe(x):
        loss = (net(x).exp() - 1).pow(2).mean()
        if not torch.isfinite(loss):
            return torch.zeros_like(loss)
        return loss

    for scale in (1, 1e4):
        print(safe(torch.randn(5, 3) * scale).item())


@program()
def keeps_degrees_by_size():
    class Degrees(nn.Module):
        def __init__(self):
            super().__init__()
            self.cache = {}

        def forward(self, edge, n):
            if n not in self.cache:
                self.cache[n] = torch.bincount(edge[1], minlength=n).clamp(min=1).float()
            return self.cache[n]

    f = compiled(Degrees())
    for n in (6, 9, 6):
        print(f(torch.randint(n, (2, 3 * n)), n).sum().item())


STATE = {"calls": 0}


@program()
def reads_its_count_on_the_line_of_the_call():
    STATE["calls"] = 0

    @compiled
    def f(x):
        STATE["calls"] += 1
        return torch.relu(x)

    for _ in range(4):
        print(f(torch.randn(3)).sum().item(), STATE["calls"])


@program()
def reads_its_count_in_a_helper():
    STATE["calls"] = 0

    def scale():
        return 1.0 / STATE["calls"]

    @compiled
    def f(x):
        STATE["calls"] += 1
        return x.relu() * scale()

    for _ in range(4):
        out = f(torch.ones(3))
        print(out.sum().item())


@program()
def only_counts_its_calls():
    STATE["calls"] = 0

    @compiled
    def f(x):
        STATE["calls"] += 1
        return torch.relu(x)

    total = 0.0
    for _ in range(10):
        total += f(torch.randn(3)).sum().item()
    print(total, STATE["calls"])


@program()
def weighs_classes_by_their_number():
    net = nn.Linear(4, 3)

    @compiled
    def loss(x, y):
        count = torch.bincount(y, minlength=3).float()
        return F.cross_entropy(net(x), y, weight=1 / count.clamp(min=1))

    for _ in range(2):
        print(loss(torch.randn(9, 4), torch.arange(9) % 3).item())


@program("capture_dynamic_output_shape_ops")
def adds_counts_to_a_buffer():
    usage = torch.zeros(8)

    @compiled
    def update(x, flag):
        usage.mul_(0.9).add_(torch.bincount(x, minlength=8).float(), alpha=0.1)
        if flag is not None:
            return usage * 2
        return usage + 0

    for _ in range(3):
        print(update(torch.randint(8, (16,)), None).sum().item())


@program()
def standardises_what_it_selects():
    net = nn.Linear(4, 4)

    @compiled
    def f(x):
        y = net(x)
        s = y[y.detach().sum(1) > 0]
        return (s - s.mean()).sum() / s.std()

    for _ in range(2):
        print(f(torch.randn(9, 4)).item())


@program()
def asks_for_the_length_in_a_helper():
    def shown(rows):
        if len(rows) == 0:
            return rows.sum()
        return rows.mean()

    @compiled
    def f(x):
        s = x[x > 0]
        return shown(s)

    for _ in range(2):
        print(f(torch.randn(9)).item())


@program()
def writes_a_part_by_out():
    scratch = torch.zeros(4, 5)

    @compiled
    def f(x):
        torch.mul(x, 2.0, out=scratch[:, :4])
        return scratch.sum()

    for _ in range(2):
        print(f(torch.randn(4, 4)).item())


@dataclass(frozen=True)
class Sampling:
    temperature: float = 1.0
    top_k: int = 0


@program()
def gets_other_settings_each_time():
    @compiled
    def sample(logits, settings):
        if settings.top_k > 0:
            logits = logits.topk(settings.top_k).values
        return (logits / settings.temperature).softmax(-1).max()

    for settings in (Sampling(), Sampling(0.7, 3), Sampling(0.8, 5)):
        print(sample(torch.randn(3, 32), settings).item())


@program()
def writes_behind_a_print():
    @compiled
    def f(x):
        y = x * 2
        print("mean", y.mean())
        y.mul_(2)
        return y.sum()

    for _ in range(2):
        print(f(torch.ones(3)).item())


@program()
def keeps_priorities_by_place():
    priorities = [1.0] * 10

    @compiled
    def f(x, places):
        errors = x.abs()
        for place, error in zip(places, errors):
            priorities[place] = float(error)
        return errors.mean()

    for start in (0, 3, 6):
        print(f(torch.randn(2), [start, start + 1]).item(), sum(priorities))


@program()
def rotates_a_queue_of_its_own():
    class Head(nn.Module):
        def __init__(self):
            super().__init__()
            self.queue = deque([1.0, 2.0], maxlen=4)

        def forward(self, x):
            y = x * 2
            torch.save(y, io.BytesIO())
            return y + 1

    f = compiled(Head())
    print(f(torch.ones(3)).sum().item())


def run(name, folder, option):
    torch._dynamo.reset()
    torch.manual_seed(0)
    said = io.StringIO()
    patched = torch._dynamo.config.patch({option: True}) if option else contextlib.nullcontext()
    with dynadiag.observe(folder / (f"{name}__cured" if option else name)), patched, contextlib.redirect_stdout(said):
        PROGRAMS[name]()
    return said.getvalue()


def main(folder):
    answers = {}
    for name, option in itertools.chain(((one, None) for one in PROGRAMS), ((one, cure) for one, cure in CURES.items() if cure)):
        if option is None or hasattr(torch._dynamo.config, option):
            answers.setdefault(name, []).append(run(name, folder, option))
    (folder / "answers.json").write_text(json.dumps(answers))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
