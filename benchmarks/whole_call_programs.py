"""Programs for `benchmarks/whole_calls.py`: right ones of the usual kinds, and wrong ones of kinds that torch 2.15 gets wrong.

Each is a function that runs its program; of a wrong one `expected` holds a piece of the line that the finding has to name.
"""

# ruff: noqa: D103, SIM105 - each program is named for what it does
from __future__ import annotations

import random
from collections import deque

import torch
from torch import nn
from whole_call_registry import Programs

PROGRAMS = Programs()
right, wrong = PROGRAMS.add_right, PROGRAMS.add_wrong


def train(model: nn.Module, batches: list[torch.Tensor], *, backend: str = "inductor", steps: int = 3) -> None:
    compiled = torch.compile(model, backend=backend)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for at in range(steps):
        optimizer.zero_grad()
        compiled(batches[at % len(batches)]).square().mean().backward()
        optimizer.step()


@right
def mlp_trains() -> None:
    train(nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 4)), [torch.randn(16, 8)])


@right
def dropout_trains() -> None:
    train(nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.5), nn.Linear(32, 4)), [torch.randn(16, 8)])


@right
def dropout_trains_aot() -> None:
    train(nn.Sequential(nn.Linear(8, 32), nn.Dropout(0.2), nn.Linear(32, 4)), [torch.randn(16, 8)], backend="aot_eager")


@right
def batch_norm_trains() -> None:
    train(nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 4)), [torch.randn(4, 3, 8, 8)])


@right
def batch_norm_trains_aot() -> None:
    train(nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 2)), [torch.randn(16, 8)], backend="aot_eager")


@right
def layer_norm_attention() -> None:
    train(nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True), [torch.randn(2, 5, 16)])


@right
def transformer_with_dropout() -> None:
    train(nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True), [torch.randn(2, 5, 16)])


@right
def gru_with_state() -> None:
    cell, state = nn.GRUCell(4, 8), torch.zeros(2, 8)
    step = torch.compile(cell)
    for _ in range(4):
        state = step(torch.randn(2, 4), state)
    state.sum().backward()


@right
def average_of_weights() -> None:
    model = nn.Linear(4, 4)
    average = [parameter.detach().clone() for parameter in model.parameters()]

    @torch.compile
    def update() -> None:
        with torch.no_grad():
            for kept, parameter in zip(average, model.parameters(), strict=True):
                kept.lerp_(parameter, 0.1)

    for _ in range(3):
        update()


@right
def hooks_before_compile() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    model[0].register_forward_hook(lambda module, args, out: out * 2)
    train(model, [torch.randn(3, 4)])


@right
def backward_hooks_before_compile() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    model[2].register_full_backward_hook(lambda module, into, out: tuple(None if item is None else item * 2 for item in into))
    train(model, [torch.randn(3, 4)], backend="aot_eager")


@right
def random_augmentation() -> None:
    @torch.compile
    def augment(x: torch.Tensor) -> torch.Tensor:
        return x + 0.1 * torch.randn_like(x)

    for _ in range(4):
        augment(torch.zeros(3, 8))


@right
def python_random() -> None:
    @torch.compile(backend="aot_eager")
    def scale(x: torch.Tensor) -> torch.Tensor:
        return x * random.uniform(0.5, 1.5)

    random.seed(0)
    for _ in range(3):
        scale(torch.ones(4))


@right
def graph_break_print() -> None:
    @torch.compile
    def show(x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        print(float(y.sum()))
        return y.cos()

    for _ in range(3):
        show(torch.ones(4))


@right
def appends_to_a_list() -> None:
    log: list[torch.Tensor] = []

    @torch.compile(backend="aot_eager")
    def note(x: torch.Tensor) -> torch.Tensor:
        log.append(x.mean())
        return x * 2

    for _ in range(4):
        note(torch.ones(3))


@right
def counts_calls() -> None:
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.calls, self.lin = 0, nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            return self.lin(x) * self.calls

    train(Counter(), [torch.randn(2, 4)], steps=4)


@right
def writes_its_input() -> None:
    @torch.compile
    def bump(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(y)
        return x.sum()

    for _ in range(3):
        bump(torch.ones(4), torch.ones(4))


@right
def dictionary_results() -> None:
    @torch.compile
    def heads(x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": x.square().mean(), "logits": x * 2}

    for _ in range(3):
        heads(torch.randn(3, requires_grad=True))["loss"].backward()


@right
def half_precision() -> None:
    train(nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 4)).bfloat16(), [torch.randn(8, 16, dtype=torch.bfloat16)])


@right
def autocast_forward() -> None:
    model = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 4))
    compiled = torch.compile(model)
    for _ in range(3):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = compiled(torch.randn(8, 16))
        out.float().square().mean().backward()


@right
def changing_sizes() -> None:
    model = torch.compile(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)))
    for size in (3, 5, 7, 9):
        model(torch.randn(size, 4)).sum().backward()


@right
def compiled_optimizer() -> None:
    model = nn.Linear(4, 4)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    step = torch.compile(optimizer.step)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(2, 4)).sum().backward()
        step()


@right
def embedding_and_loss() -> None:
    class Tagger(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.out = nn.Embedding(20, 8), nn.Linear(8, 3)

        def forward(self, tokens: torch.Tensor, tags: torch.Tensor) -> torch.Tensor:
            return nn.functional.cross_entropy(self.out(self.words(tokens)).flatten(0, 1), tags.flatten())

    model = Tagger()
    compiled = torch.compile(model)
    for _ in range(3):
        compiled(torch.randint(20, (2, 5)), torch.randint(3, (2, 5))).backward()


@right
def catches_its_own_error() -> None:
    @torch.compile(backend="aot_eager")
    def checked(x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] > 3:
            raise ValueError("too long")
        return x * 2

    for size in (2, 3, 4):
        try:
            checked(torch.ones(size))
        except ValueError:
            pass


@right
def evaluation_after_training() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 2))
    compiled = torch.compile(model)
    compiled(torch.randn(6, 4)).sum().backward()
    model.eval()
    with torch.no_grad():
        compiled(torch.randn(6, 4))
        compiled(torch.randn(6, 4))


@right
def checkpointing() -> None:
    from torch.utils.checkpoint import checkpoint

    inner = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 4))

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return checkpoint(self.inner, x, use_reentrant=False)  # type: ignore[no-any-return]

    train(Outer(), [torch.randn(3, 4)])


@right
def returns_views() -> None:
    @torch.compile(backend="aot_eager")
    def split(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x[:2], x[2:]

    for _ in range(3):
        split(torch.randn(5))


@right
def kept_cache() -> None:
    class Cached(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("cache", torch.zeros(4, 3))

        def forward(self, x: torch.Tensor, at: int) -> torch.Tensor:
            self.cache[at] = x
            return self.cache.sum(0)

    model = torch.compile(Cached())
    for at in range(3):
        model(torch.randn(3), at)


@right
def compiled_in_place() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    model.compile(backend="aot_eager")
    for _ in range(3):
        model(torch.randn(2, 4)).sum().backward()


@right
def time_of_day() -> None:
    import time

    @torch.compile(backend="aot_eager")
    def stamped(x: torch.Tensor) -> tuple[torch.Tensor, float]:
        now = time.perf_counter()
        return x * 2, now

    for _ in range(3):
        stamped(torch.ones(3))


@right
def convolution_net() -> None:
    layers = [nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 16, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1)]
    train(nn.Sequential(*layers, nn.Flatten(), nn.Linear(16, 5)), [torch.randn(4, 3, 16, 16)])


@right
def short_deque() -> None:
    window: deque[torch.Tensor] = deque(maxlen=10)

    @torch.compile(backend="aot_eager")
    def mean(x: torch.Tensor) -> torch.Tensor:
        window.append(x.mean())
        return torch.stack(list(window)).mean()

    for _ in range(3):
        mean(torch.randn(4))


@wrong("append")
def deque_of_losses() -> None:
    recent: deque[torch.Tensor] = deque((torch.tensor(float(at)) for at in range(4)), maxlen=4)

    @torch.compile(backend="aot_eager")
    def smooth(loss: torch.Tensor) -> torch.Tensor:
        recent.append(loss.detach())
        return torch.stack(list(recent)).mean()

    for at in range(3):
        smooth(torch.tensor(float(at * 10)))


@wrong("self.body(")
def hook_added_for_debugging() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Linear(3, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            hidden = self.body(x)
            return hidden.relu()

    net = Net()
    compiled = torch.compile(net, backend="aot_eager")
    compiled(torch.ones(2, 3))
    net.body.register_forward_pre_hook(lambda module, args: (args[0] * 3,))
    compiled(torch.ones(2, 3))


@wrong("tensor.mul_(")
def overlapping_halves() -> None:
    @torch.compile(backend="aot_eager")
    def mix(tensor: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        tensor.mul_(3)
        return tensor + other

    mix(torch.ones(4), torch.ones(4))
    whole = torch.ones(6)
    mix(whole[:4], whole[2:])


@wrong("is pool.idle")
def identity_of_a_worker() -> None:
    class Pool:
        def __init__(self) -> None:
            self.idle, self.busy = object.__new__(Pool), object.__new__(Pool)
            self.chosen = self.idle

    @torch.compile(backend="aot_eager")
    def work(pool: Pool, x: torch.Tensor) -> torch.Tensor:
        if pool.chosen is pool.idle:
            pool.chosen = pool.busy
            return x * 2
        pool.chosen = pool.idle
        return x * 5

    pool = Pool()
    for _ in range(4):
        work(pool, torch.ones(2))


@wrong("self.head(")
def swapped_head() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(2, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x.sin()
            return self.head(y)

    model = Model()
    compiled = torch.compile(model, backend="aot_eager")
    compiled(torch.ones(2))
    model.__dict__["head"] = nn.Linear(2, 2)
    compiled(torch.ones(2))


@wrong("return left, right, whole.detach()")
def lost_gradient_of_three() -> None:
    layer = nn.Linear(4, 6)

    @torch.compile
    def parts(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        whole = layer(x).sigmoid()
        left, right = whole[:, :3], whole[:, 3:]
        return left, right, whole.detach()

    parts(torch.randn(2, 4))


@wrong("yield")
def generator_of_pieces() -> None:
    seen: list[int] = []

    def pieces(x: torch.Tensor):  # type: ignore[no-untyped-def]
        for at in range(2):
            seen.append(at)
            yield x * at

    compiled = torch.compile(lambda x: pieces(x), backend="aot_eager")
    list(compiled(torch.ones(2)))


@wrong("scale.data")
def written_through_data() -> None:
    scale = nn.Parameter(torch.ones(2))

    @torch.compile(backend="aot_eager")
    def decay(x: torch.Tensor) -> torch.Tensor:
        scale.data.mul_(0.9)
        return (scale * x).sum()

    decay(torch.ones(2))


@wrong("torch.linalg.inv(x)")
def singular_matrix() -> None:
    @torch.compile(backend="aot_eager")
    def invert(x: torch.Tensor) -> torch.Tensor:
        try:
            return torch.linalg.inv(x)
        except RuntimeError:
            return torch.eye(2)

    invert(torch.eye(2))
    try:
        invert(torch.zeros(2, 2))
    except RuntimeError:
        pass


@wrong("is_compiling")
def other_branch_while_compiling() -> None:
    @torch.compile(backend="aot_eager")
    def norm(x: torch.Tensor) -> torch.Tensor:
        if torch.compiler.is_compiling():
            return x / x.sum()
        return x / x.norm()

    norm(torch.arange(1.0, 4.0))
