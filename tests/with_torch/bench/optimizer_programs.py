"""Train steps with every optimizer of torch.optim, in each of its implementations and in three precisions; right ones and wrong ones."""

from __future__ import annotations

import inspect

import torch
import torch.nn.functional as F
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd

HOW = ("single", "foreach", "fused", "capturable", "capturable_foreach", "tensor_lr")
PRECISIONS = ("fp32", "bf16", "fp16")
LR = 1e-3


def optimizers():
    """The optimizers of this torch that update dense parameters from gradients alone, by name (LBFGS asks for a closure)."""
    kinds = {name: getattr(torch.optim, name) for name in sorted(dir(torch.optim))}
    kinds = {name: kind for name, kind in kinds.items() if isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer)}
    return {name: kind for name, kind in kinds.items() if name not in ("Optimizer", "LBFGS", "SparseAdam")}


def combinations(device):
    """(optimizer, how) that this torch has on this kind of device."""
    for name, kind in optimizers().items():
        known = inspect.signature(kind.__init__).parameters
        for how in HOW:
            needed = {"single": (), "tensor_lr": ("foreach", "capturable" if device == "cpu" else "fused")}.get(how, tuple(how.split("_")))
            # `Adagrad(fused=True)` refuses CUDA on 2.11.
            if name == "Adagrad" and device == "cuda" and how in ("fused", "tensor_lr"):
                continue
            if all(word in known for word in needed) and (device == "cuda" or "capturable" not in how):
                yield name, how


def _options(how, device, known):
    if how == "tensor_lr":
        # A foreach optimizer takes a tensor as learning rate only where it is capturable (`torch/optim/adam.py`, 2.11 to 2.15).
        return {"lr": torch.tensor(LR, device=device), **({"fused": True} if "fused" in known else {"foreach": False})}
    if how == "single":
        return {"lr": LR, **({"foreach": False} if "foreach" in known else {})}
    return {"lr": LR, **dict.fromkeys(how.split("_"), True)}


def make(name, how, precision, device, *, run=lambda model: model):
    """The step, the model and the optimizer; `run` may compile the model. fp16 is autocast with a scaler, bf16 is bfloat16 throughout."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(24, 32, bias=False), torch.nn.GELU(), torch.nn.Linear(32, 10, bias=False)).to(device)
    x, y = torch.randn(64, 24, device=device), torch.randint(0, 10, (64,), device=device)
    if precision == "bf16":
        model, x = model.bfloat16(), x.bfloat16()
    kind = optimizers()[name]
    optimizer = kind(model.parameters(), **_options(how, device, inspect.signature(kind.__init__).parameters))
    scaler = torch.amp.GradScaler(device, enabled=precision == "fp16")
    called = run(model)

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device, dtype=torch.float16, enabled=precision == "fp16"):
            loss = F.cross_entropy(called(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()

    return step, model, optimizer


def lose_an_update(step, model, _optimizer):
    """The first parameter stays as it was."""

    def wrong():
        parameter = next(model.parameters())
        before = parameter.detach().clone()
        loss = step()
        with torch.no_grad():
            parameter.copy_(before)
        return loss

    return wrong


def larger_steps(step, model, _optimizer):
    """Each parameter moves a half further than it should."""

    def wrong():
        before = [parameter.detach().clone() for parameter in model.parameters()]
        loss = step()
        with torch.no_grad():
            for parameter, old in zip(model.parameters(), before, strict=True):
                parameter.add_((parameter - old) * 0.5)
        return loss

    return wrong


def wrong_state(step, _model, optimizer):
    """What the optimizer keeps of the first parameter is a tenth too large."""

    def wrong():
        loss = step()
        with torch.no_grad():
            kept = next(iter(optimizer.state.values()), {})
            for key, value in kept.items():
                if isinstance(value, torch.Tensor) and key != "step" and value.is_floating_point():
                    value.mul_(1.1)
        return loss

    return wrong


def lost_count(step, _model, optimizer):
    """The optimizer does not count the step."""

    def wrong():
        kept = [one["step"] for one in optimizer.state.values() if isinstance(one.get("step"), torch.Tensor)]
        loss = step()
        for count in kept:
            count.sub_(1)
        return loss

    return wrong


def lbfgs(precision, *, search=None, run=lambda model: model):
    """A step of LBFGS, which calls its closure several times and keeps lists of directions."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    x, y = torch.randn(16, 4), torch.randn(16, 1)
    if precision == "bf16":
        model, x, y = model.bfloat16(), x.bfloat16(), y.bfloat16()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3, line_search_fn=search)
    called = run(model)

    def closure():
        optimizer.zero_grad()
        loss = (called(x) - y).square().mean()
        loss.backward()
        return loss

    return lambda: optimizer.step(closure), model, optimizer


def lbfgs_with_a_line_search(precision, *, run=lambda model: model):
    """The same with steps of the length that a line search finds."""
    return lbfgs(precision, search="strong_wolfe", run=run)


def sparse_adam(precision, *, run=lambda model: model):
    """A step whose gradient is a sparse tensor."""
    torch.manual_seed(0)
    model = torch.nn.Embedding(32, 8, sparse=True)
    model = model.bfloat16() if precision == "bf16" else model
    optimizer, rows, called = torch.optim.SparseAdam(model.parameters(), lr=0.01), torch.randint(0, 32, (4, 4)), run(model)

    def step():
        optimizer.zero_grad()
        loss = called(rows).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step, model, optimizer


def lying(model, *, factor):
    """The model compiled by a back end whose backward gives the first gradient `factor` times as large."""

    def forward(graph, _inputs):
        return make_boxed_func(graph.forward)

    def backward(graph, _inputs):
        def run(*args):
            gradients = list(graph.forward(*args))
            at = next(at for at, one in enumerate(gradients) if isinstance(one, torch.Tensor))
            gradients[at] = gradients[at] * factor
            return gradients

        return make_boxed_func(run)

    return torch.compile(model, backend=aot_autograd(fw_compiler=forward, bw_compiler=backward))
