"""Programs for `benchmarks/whole_calls.py --held-out`: written before anybody read the code that finds them, and not tuned to since.

The names and the rules are those of `whole_call_programs.py`.
"""

# ruff: noqa: D103, SIM105 - each program is named for what it does
from __future__ import annotations

import contextlib
import copy
import random
from collections import deque
from collections.abc import Iterator

import torch
from torch import nn
from whole_call_registry import Programs

PROGRAMS = Programs()
right, wrong = PROGRAMS.add_right, PROGRAMS.add_wrong


# ---- right


@right
def ema_of_weights_is_kept() -> None:
    net = nn.Sequential(nn.Linear(6, 12), nn.SiLU(), nn.Linear(12, 3))
    average = copy.deepcopy(net)
    compiled = torch.compile(net)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    for _ in range(4):
        optimizer.zero_grad()
        compiled(torch.randn(8, 6)).pow(2).sum().backward()
        optimizer.step()
        with torch.no_grad():
            for kept, now in zip(average.parameters(), net.parameters(), strict=True):
                kept.lerp_(now, 0.1)


@right
def ema_inside_the_step() -> None:
    class Tracker(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.proj = nn.Linear(5, 5)
            self.register_buffer("mean", torch.zeros(5))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.proj(x)
            with torch.no_grad():
                self.mean.mul_(0.9).add_(y.mean(0), alpha=0.1)
            return y - self.mean

    tracker = Tracker()
    compiled = torch.compile(tracker, backend="aot_eager")
    for _ in range(4):
        compiled(torch.randn(7, 5)).abs().mean().backward()


@right
def augmentation_is_random() -> None:
    def augment(images: torch.Tensor) -> torch.Tensor:
        if random.random() < 0.5:
            images = images.flip(-1)
        gain = 1 + 0.1 * torch.randn(images.shape[0], 1, 1)
        return (images * gain + torch.rand_like(images) * 0.01).clamp(0, 1)

    random.seed(3)
    compiled = torch.compile(augment)
    for _ in range(4):
        compiled(torch.rand(3, 8, 8))


@right
def norm_and_dropout_switch_between_modes() -> None:
    net = nn.Sequential(nn.Conv1d(2, 4, 3), nn.BatchNorm1d(4), nn.Dropout(0.3), nn.Flatten(), nn.LazyLinear(2))
    net(torch.randn(4, 2, 10))
    compiled = torch.compile(net)
    for training in (True, False, True):
        net.train(training)
        out = compiled(torch.randn(4, 2, 10))
        if training:
            out.square().mean().backward()


@right
def hooks_stand_before_the_first_call() -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2))
    net[0].register_forward_hook(lambda module, args, out: out * 2)
    net[2].register_forward_pre_hook(lambda module, args: (args[0] + 1,))
    compiled = torch.compile(net, backend="aot_eager")
    for _ in range(3):
        compiled(torch.randn(3, 4)).sum().backward()


@right
def history_is_a_full_deque_outside() -> None:
    history: deque[float] = deque(maxlen=2)
    compiled = torch.compile(lambda x: (x * x).mean(), backend="aot_eager")
    for at in range(5):
        history.append(float(compiled(torch.full((3,), float(at)))))
    assert len(history) == 2


@right
def counter_in_a_dataclass() -> None:
    class State:
        steps = 0
        scale = 1.5

    state = State()

    def step(x: torch.Tensor) -> torch.Tensor:
        state.steps += 1
        return x * state.scale + state.steps

    compiled = torch.compile(step, backend="aot_eager", dynamic=True)
    for _ in range(3):
        compiled(torch.randn(4))


@right
def attention_with_a_growing_cache() -> None:
    def attend(query: torch.Tensor, keys: list[torch.Tensor]) -> torch.Tensor:
        keys.append(query)
        stacked = torch.stack(keys)
        return torch.softmax(stacked @ query, 0) @ stacked

    compiled = torch.compile(attend, backend="aot_eager")
    keys: list[torch.Tensor] = []
    for _ in range(3):
        compiled(torch.randn(6), keys)


@right
def exception_is_caught_inside() -> None:
    table = {"a": 1.0}

    def look_up(x: torch.Tensor, key: str) -> torch.Tensor:
        try:
            return x * table[key]
        except KeyError:
            return x * 0

    compiled = torch.compile(look_up, backend="aot_eager")
    for key in ("a", "b", "a"):
        compiled(torch.randn(3), key)


@right
def generator_is_consumed_inside() -> None:
    def halves(x: torch.Tensor) -> Iterator[torch.Tensor]:
        for part in x.chunk(2):
            yield part.sin()

    compiled = torch.compile(lambda x: sum(part.sum() for part in halves(x)), backend="aot_eager")
    for _ in range(3):
        compiled(torch.randn(8, requires_grad=True)).backward()


@right
def views_are_written_in_turn() -> None:
    def shift(board: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        board[1:].add_(rows)
        board[0].zero_()
        return board.sum(0)

    compiled = torch.compile(shift)
    board = torch.randn(4, 3)
    for _ in range(3):
        compiled(board, torch.randn(3, 3))


@right
def distribution_with_its_checks_off() -> None:
    def log_density(mean: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return torch.distributions.Normal(mean, 1.0, validate_args=False).log_prob(x).sum()

    compiled = torch.compile(log_density, backend="aot_eager")
    for _ in range(3):
        compiled(torch.randn(3), torch.randn(3))


# ---- wrong


@wrong(".append(value)")
def last_losses_in_a_deque() -> None:
    class Recent:
        def __init__(self) -> None:
            self.values = deque([torch.zeros(()), torch.ones(())], maxlen=2)

    recent = Recent()

    def smooth(x: torch.Tensor) -> torch.Tensor:
        value = x.max()
        recent.values.append(value)
        return torch.stack(list(recent.values)).mean()

    compiled = torch.compile(smooth, backend="aot_eager")
    for at in range(3):
        compiled(torch.arange(4.0) + at)


@wrong("appendleft(")
def newest_first() -> None:
    frames = deque([torch.zeros(2), torch.ones(2), torch.ones(2)], maxlen=3)

    def stack(frame: torch.Tensor) -> torch.Tensor:
        frames.appendleft(frame * 2)
        return torch.cat(list(frames))

    compiled = torch.compile(stack, backend="aot_eager")
    for _ in range(2):
        compiled(torch.randn(2))


@wrong("register_forward_hook(")
def probe_is_added_later() -> None:
    net = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))
    compiled = torch.compile(net, backend="aot_eager")
    compiled(torch.randn(2, 3))
    net[2].register_forward_hook(lambda module, args, out: out.clamp(-0.1, 0.1))
    compiled(torch.randn(2, 3) * 10)


@wrong("register_forward_pre_hook(")
def scaling_is_added_later() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x).relu()

    net = Scaled()
    compiled = torch.compile(net, backend="aot_eager")
    compiled(torch.ones(1, 4))
    net.inner.register_forward_pre_hook(lambda module, args: (args[0] * 100,))
    compiled(torch.ones(1, 4))


@wrong("except ")
def inverse_falls_back() -> None:
    def solve(a: torch.Tensor) -> torch.Tensor:
        try:
            return torch.linalg.inv(a)
        except torch.linalg.LinAlgError:
            return torch.linalg.pinv(a)

    compiled = torch.compile(solve, backend="aot_eager")
    compiled(torch.eye(3))
    try:
        compiled(torch.zeros(3, 3))
    except RuntimeError:
        pass


@wrong("yield ")
def pieces_come_lazily() -> None:
    made: list[int] = []

    def pieces(x: torch.Tensor) -> Iterator[torch.Tensor]:
        for at in range(2):
            made.append(at)
            yield x * at

    def cut(x: torch.Tensor) -> Iterator[torch.Tensor]:
        return pieces(x)

    compiled = torch.compile(cut, backend="aot_eager")
    for _ in range(2):
        next(iter(compiled(torch.ones(2))))


@wrong("target.add_(")
def two_windows_of_one_buffer() -> None:
    def blend(target: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
        target.add_(1)
        source.mul_(3)
        return target.sum() * source.sum()

    compiled = torch.compile(blend, backend="aot_eager")
    compiled(torch.ones(5), torch.ones(5))
    ring = torch.ones(8)
    compiled(ring[:5], ring[3:])


@wrong("__dict__")
def layer_is_swapped_by_hand() -> None:
    class Host(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = nn.Linear(3, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.block(x)

    host = Host()
    compiled = torch.compile(host, backend="aot_eager")
    compiled(torch.ones(3))
    vars(host)  # the next line is what a "hot swap" of a served model does
    host.__dict__["block"] = nn.Linear(3, 3)
    compiled(torch.ones(3))


@wrong("owner.active is owner.first")
def branch_on_identity() -> None:
    class Branch:
        pass

    class Owner:
        def __init__(self) -> None:
            self.first, self.second = Branch(), Branch()
            self.active = self.first

    owner = Owner()

    def forward(x: torch.Tensor) -> torch.Tensor:
        if owner.active is owner.first:
            return x * 2
        return x * -2

    compiled = torch.compile(forward, backend="aot_eager")
    compiled(torch.ones(2))
    owner.active = owner.second
    compiled(torch.ones(2))
    owner.active = owner.first
    compiled(torch.ones(2))


@wrong("return left, right, both.detach()")
def loss_loses_its_gradient() -> None:
    net = nn.Linear(4, 6)

    def halves(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        both = net(x).sigmoid()
        left, right = both[:, :3], both[:, 3:]
        return left, right, both.detach()

    compiled = torch.compile(halves)
    for _ in range(2):
        left, right, _ = compiled(torch.randn(2, 4))
        with contextlib.suppress(RuntimeError):
            (left.sum() + right.sum()).backward()


@wrong("assert ")
def refused_input_is_replaced() -> None:
    def safe_log(x: torch.Tensor) -> torch.Tensor:
        try:
            assert (x > 0).all(), "not positive"
        except AssertionError:
            x = x.abs() + 1
        return x.log()

    compiled = torch.compile(safe_log, backend="aot_eager")
    compiled(torch.ones(3))
    with contextlib.suppress(RuntimeError):
        compiled(-torch.ones(3))


@wrong("weight.data.mul_(")
def weight_decay_in_the_forward() -> None:
    class Decayed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.weight.data.mul_(0.9)
            return (self.weight * x).sum()

    net = Decayed()
    compiled = torch.compile(net, backend="aot_eager")
    penalty = net.weight.square().sum()
    loss = compiled(torch.ones(3))
    with contextlib.suppress(RuntimeError):
        (loss + penalty).backward()
