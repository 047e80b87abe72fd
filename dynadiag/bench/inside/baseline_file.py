"""What the baseline leaves in a file for an arm that runs another version of the program: its first state, and results to agree with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dynadiag.bench.inside.checking import Outcome, judge
from dynadiag.bench.inside.comparing import compare_all
from dynadiag.bench.inside.reference import Expected
from dynadiag.bench.inside.state import State


def save(expected: Expected, path: Path) -> None:
    """Keep the state that the baseline starts from, and what eager made of it."""
    import torch

    state = {name: value.cpu() for name, value in expected.snapshot.copies.items()}
    torch.save({"state": state, "first": {name: value.cpu() for name, value in expected.recorded.first.items()}}, path)


def load(path: Path) -> dict[str, dict[str, Any]]:
    """What `save` kept; only tensors are read."""
    import torch

    kept: dict[str, dict[str, Any]] = torch.load(path, map_location="cpu", weights_only=True)
    return kept


def take_over(state: State, kept: dict[str, dict[str, Any]]) -> None:
    """Give every tensor that has the name and shape of one of the baseline's that one's values."""
    import torch

    with torch.no_grad():
        for name, held in state.held.items():
            value = kept["state"].get(name)
            if value is not None and value.shape == held.tensor.shape and value.dtype == held.tensor.dtype:
                held.tensor.copy_(value)


def agree(expected: Expected, kept: dict[str, dict[str, Any]]) -> Outcome | None:
    """None when eager here gives what eager gave before the change; otherwise how they differ, or that they share no output.

    Outputs are compared, and every gradient and tensor that both programs have by name; what only one has is a change of the program.
    """
    before, now = kept["first"], expected.recorded
    shared = {name: value for name, value in before.items() if name in now.first}
    if not any(name.startswith("output") for name in shared):
        return Outcome(status="NOT_COMPARED", detail="the two programs share no output, so nothing says that they compute the same")
    here = type(now)(first={name: now.first[name] for name in shared}, second=now.second, exact=now.exact, nudged=now.nudged)
    outcome = judge(compare_all(here, shared), "eager is after, here is before the change")
    return None if outcome.status == "PASS" else outcome
