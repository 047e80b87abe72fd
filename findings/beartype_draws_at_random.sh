#!/usr/bin/env bash
# torch 2.15.0, beartype 0.23.1.
# Guess: @beartype costs a graph break in each decorated function, or in none.
# Seen:  it depends on the annotation: torch.Tensor, int and unions cost none; list[float] breaks, since beartype checks one item that it
#        draws with random.getrandbits. `list` without the item type ends it.
# Met by: configurations passed as list[int], tuple-of-sizes helpers, in projects that decorate everything.
. "$(dirname "$0")/common.sh"
install torch==2.15.0 beartype==0.23.1
run_program <<'PROGRAM'
import torch
from beartype import beartype
from torch._dynamo.utils import counters


@beartype
def tensor(x: torch.Tensor, factor: int | None) -> torch.Tensor:
    return x + 1


@beartype
def items(x: torch.Tensor, factors: list[float]) -> torch.Tensor:
    return x + 1


@beartype
def container(x: torch.Tensor, factors: list) -> torch.Tensor:
    return x + 1


seen = {}
for function, argument in ((tensor, 3), (items, [1.0, 2.0]), (container, [1.0, 2.0])):
    torch._dynamo.reset()
    counters.clear()
    torch.compile(function, backend="eager")(torch.ones(1), argument)
    seen[function.__name__] = sum(counters["graph_break"].values())
    if function is items:
        assert "getrandbits" in next(iter(counters["graph_break"]))
print("breaks:", seen)
assert seen == {"tensor": 0, "items": 1, "container": 0}
PROGRAM
