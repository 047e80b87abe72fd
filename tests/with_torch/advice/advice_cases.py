"""What a case of advice is: a function that breaks, and one function for each advice that cures it (or says what remains).

class reads_a_scalar:                      the case
    breaks = {"GB0124"}                    ids on torch 2.15; `breaks_old` where 2.11 differs
    def inputs(): ...                      fresh arguments for each run
    def before(x): ...                     must break
    def item_keep_tensor(x): ...           the rewrite that the advice `item-keep-tensor` asks for
    item_capture = option("torch...")      the same function with this statement executed before the first call
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable


@dataclasses.dataclass
class Cure:
    """How to apply one advice: the function (None: `before`), a statement executed first, and which ids are said to remain."""

    function: Callable | None = None
    setup: str = ""
    remains: frozenset[str] = frozenset()
    drives: bool = False
    only: str = ""


def option(setup: str, *, remains: tuple[str, ...] = (), only: str = "") -> Cure:
    """The unchanged function after `setup`; `only` names the torch ("2.15") that has the cure."""
    return Cure(None, setup, frozenset(remains), only=only)


def cure(*, setup: str = "", remains: tuple[str, ...] = (), drives: bool = False, only: str = ""):
    """A changed function after `setup`; one that `drives` gets `compiled` (a decorator) first and calls the pieces itself."""
    return lambda function: Cure(function, setup, frozenset(remains), drives, only)


def drives(function: Callable) -> Cure:
    """The user's program around the compiled function: gets `compiled` (a decorator) first."""
    return Cure(function, drives=True)


RESERVED = {"backend", "setup", "inputs", "before", "breaks", "breaks_old", "grads", "shapes_only", "tolerance"}


def one_tensor():
    import torch

    return (torch.tensor([1.0, 2.0, 3.0]),)


def cures_of(case: type) -> dict[str, Cure]:
    """The cures of a case by slug (`item_keep_tensor` is `item-keep-tensor`)."""
    found = {}
    for name, value in vars(case).items():
        if name.startswith("_") or name in RESERVED:
            continue
        found[name.replace("_", "-")] = value if isinstance(value, Cure) else Cure(value)
    return found
