"""What proofs watch without compiling it, and what they compile without watching it."""

from __future__ import annotations

import logging

import pytest
import torch

from dynadiag.capture.compiled_calls import APART, CompiledCalls
from dynadiag.capture.reach import find_state

FACTOR = 2.0
logger = logging.getLogger(__name__)


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin = torch.nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.lin(x)


class Solver:
    def step(self, x: torch.Tensor) -> torch.Tensor:
        return x * FACTOR

    def run(self, x: torch.Tensor) -> torch.Tensor:
        return self.step(x) + 1


def test_a_plain_module_and_a_plain_method_are_watched_and_what_is_apart_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", torch.compile)  # as it was afterwards
    seen: list[tuple[str, int]] = []
    calls = CompiledCalls(lambda callee, number, args, kwargs: seen.append((callee.name, number)), eager=False)
    calls.install()
    try:
        net, solver, x = Net(), Solver(), torch.ones(1, 2)
        before = find_state(solver.run)
        assert calls.watch(net) is net
        run = calls.watch(solver.run)
        solver.step = torch.compile(solver.step, backend="eager", **{APART: True})  # type: ignore[method-assign]
        net(x)
        assert run(x).tolist() == [[3.0, 3.0]]
        assert net(x).shape == (1, 2)
        assert seen == [("Net", 1), ("Solver.run", 1), ("Net", 2)]
        after = find_state(solver.run)
        assert set(after.slots) - set(before.slots) == {"step.self.step"}  # what is in it is not looked at: `FACTOR`
    finally:
        calls.stop()
    net(x)
    assert len(seen) == 3


def test_a_logger_is_no_state_of_a_step_that_names_it() -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        logger.warning("%s", x.shape)
        return x * FACTOR

    state = find_state(step)
    assert {name for name in state.slots if name.startswith("logger")} == {"logger"}
    assert not state.containers
    assert state.slots["FACTOR"].get() == 2.0
