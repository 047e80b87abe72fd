"""Writes of which CUDA graphs are skipped or not: predicted by the report, seen in torch. Used by `mutation_costs.py` and `tests/gpu`."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch

import dynadiag
from dynadiag.model.report import Mutation
from dynadiag.passes.find_mutations import find_mutations
from dynadiag.trace import load

CALLS = 4


class Case(NamedTuple):
    """A function of what `make` gives for a device and of a small tensor; called under no_grad if `no_grad`.

    Compiled without torch's caches on disk, except where `warmed_by` names the case that has filled them with its graph before.
    """

    function: Callable[[Any, torch.Tensor], Any]
    make: Callable[[str], Any]
    no_grad: bool = False
    warmed_by: str | None = None


class Holder(torch.nn.Module):
    """A module with a buffer, a plain tensor and a parameter."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self.register_buffer("b", zeros(device))
        self.t = zeros(device)
        self.w = torch.nn.Parameter(ones(device))


class Plain:
    """An object that is no module."""

    def __init__(self, device: str) -> None:
        self.t = zeros(device)


def zeros(device: str) -> torch.Tensor:
    """Four zeros."""
    return torch.zeros(4, device=device)


def ones(device: str) -> torch.Tensor:
    """Four ones."""
    return torch.ones(4, device=device)


def leaf(device: str) -> torch.Tensor:
    """Four ones that require grad."""
    return torch.ones(4, device=device, requires_grad=True)


def not_leaf(device: str) -> torch.Tensor:
    """Four ones that require grad and may be written."""
    return leaf(device).clone()


def marked(device: str) -> torch.Tensor:
    """A cache of which Dynamo is told that its address stays."""
    cache = zeros(device)
    torch._dynamo.mark_static_address(cache)
    return cache


def optimizer(device: str) -> torch.optim.Optimizer:
    """An optimizer whose step can be captured."""
    weight = torch.nn.Parameter(ones(device))
    weight.grad = ones(device)
    return torch.optim.AdamW([weight], capturable=device != "cpu", foreach=True)


def buffer(m: Any, x: torch.Tensor) -> torch.Tensor:
    """Write a buffer."""
    m.b.add_(x)
    return m.b * 2


def attribute(m: Any, x: torch.Tensor) -> torch.Tensor:
    """Write a tensor attribute."""
    m.t.add_(x)
    return m.t * 2


def argument(c: Any, x: torch.Tensor) -> torch.Tensor:
    """Write the argument."""
    c.add_(x)
    return c * 2


def part(c: Any, x: torch.Tensor) -> torch.Tensor:
    """Write a view of the argument."""
    c[:2].add_(x[:2])
    return c * 2


def in_list(c: Any, x: torch.Tensor) -> torch.Tensor:
    """Write a tensor in a list."""
    c[0].add_(x)
    return c[0] * 2


def in_place(v: Any, x: torch.Tensor) -> torch.Tensor:
    """Write what may require grad."""
    v.mul_(2)
    return (v * x).sum()


def through_data(v: Any, x: torch.Tensor) -> torch.Tensor:
    """Write through .data."""
    v.data.mul_(2)
    return (v * x).sum()


def parameter_data(m: Any, x: torch.Tensor) -> torch.Tensor:
    """Write a parameter through .data."""
    m.w.data.mul_(2)
    return (m.w * x).sum()


def under_no_grad(v: Any, x: torch.Tensor) -> torch.Tensor:
    """Write under no_grad."""
    with torch.no_grad():
        v.mul_(2)
    return (v * x).sum()


def new_storage(v: Any, x: torch.Tensor) -> torch.Tensor:
    """Give the argument another storage."""
    v.data = x * 2
    return v + 1


def behind_break(v: Any, x: torch.Tensor) -> torch.Tensor:
    """Write behind a graph break."""
    y = v * 2
    torch._dynamo.graph_break()
    y.relu_()
    return y + x


def step(opt: Any, _x: torch.Tensor) -> None:
    """Step an optimizer."""
    opt.step()


# The first seven are the kinds that the project's aims name.
CASES = {
    "plain argument": Case(argument, zeros),
    "buffer": Case(buffer, Holder),
    "module attribute": Case(attribute, Holder),
    "object attribute": Case(attribute, Plain),
    "static address": Case(argument, marked),
    ".data of a parameter": Case(parameter_data, Holder),
    "optimizer": Case(step, optimizer),
    ".data of an argument": Case(through_data, leaf),
    ".data of an argument, called under no_grad": Case(through_data, leaf, no_grad=True),
    "part of an argument": Case(part, zeros),
    "argument in a list": Case(in_list, lambda device: [zeros(device)]),
    "requires grad": Case(in_place, not_leaf),
    "requires grad, called under no_grad": Case(in_place, not_leaf, no_grad=True),
    "leaf under no_grad": Case(under_no_grad, leaf),
    "new storage": Case(new_storage, ones),
    "behind a graph break": Case(behind_break, ones),
    "behind a graph break, requires grad": Case(behind_break, leaf),
    "behind a graph break, called under no_grad": Case(behind_break, leaf, no_grad=True),
    "static address, graph of a plain argument in the cache": Case(argument, marked, warmed_by="plain argument"),
}


def reported(folder: Path) -> tuple[Mutation, ...]:
    """What the report of a run directory says of its mutations, probed as after `dynadiag explain`."""
    file = Path(dynadiag.__file__).parent / "fx" / "probe_main.py"
    spec = importlib.util.spec_from_file_location("probe_main", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.main([str(folder)])
    return find_mutations(load(folder)).mutations


def says_skip(mutations: tuple[Mutation, ...]) -> bool:
    """Whether a skip is reported, and without a condition."""
    effects = [effect for one in mutations for effect in one.effects]
    return any(effect["kind"] == "cudagraph_skip" and "condition" not in effect for effect in effects)


def predicted(case: Case, folder: Path, device: str = "cpu") -> bool:
    """Whether the report of a recording with `aot_eager` predicts a skip."""
    torch._dynamo.reset()
    with dynadiag.observe(folder), torch.set_grad_enabled(not case.no_grad):
        torch.compile(case.function, backend="aot_eager")(case.make(device), ones(device))
    return says_skip(reported(folder))


class Seen(NamedTuple):
    """What torch did: skips that it counted, CUDA graphs that it kept, what the report of that very run says."""

    skips: int
    graphs: int | None
    reported: bool


def seen(case: Case, folder: Path, device: str = "cuda") -> Seen:
    """Run the case with mode="reduce-overhead", recorded."""
    with torch.compiler.config.patch(force_disable_caches=case.warmed_by is None):
        if case.warmed_by is not None:
            run(CASES[case.warmed_by], device)
        with dynadiag.observe(folder):
            skips = run(case, device)
    return Seen(skips, kept_graphs(), says_skip(reported(folder)))


def run(case: Case, device: str) -> int:
    """Call the compiled case; the skips that torch counted."""
    torch._dynamo.reset()
    counters = torch._dynamo.utils.counters
    counters.clear()
    compiled, first = torch.compile(case.function, mode="reduce-overhead"), case.make(device)
    with torch.set_grad_enabled(not case.no_grad):
        for _ in range(CALLS):
            torch.compiler.cudagraph_mark_step_begin()
            compiled(first, ones(device))
    return counters["inductor"]["cudagraph_skips"]


def kept_graphs() -> int | None:
    """CUDA graphs that torch holds on the first device (`torch/_inductor/cudagraph_trees.py`); None when that cannot be read."""
    try:
        from torch._inductor.cudagraph_trees import get_manager

        manager = get_manager(0, create_if_none_exists=False)
        if manager is None:
            return 0
        waiting = [node for nodes in manager.roots.values() for node in nodes]
        count = 0
        while waiting:
            node = waiting.pop()
            count += 1
            waiting += [child for children in node.children.values() for child in children]
    except (ImportError, AttributeError, TypeError):
        return None
    return count
