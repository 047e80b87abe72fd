"""The losses of a training script in its own process, run as it is or otherwise: in eager, with other rounding, with some graphs in eager.

What the parent asks for comes in a variable. A loss is a tensor of one value whose `backward` is called; so many of them end the program.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from dynadiag.capture.reach import seed_generators
from dynadiag.files import extended
from dynadiag.import_watcher import ImportWatcher

VARIABLE = "DYNADIAG_LOSSES"
LOSSES, GRAPHS = "losses-{}.txt", "graphs-{}.txt"
"""By process: the losses, a line each, and the numbers of the graphs that were handed to a back end."""


@dataclass(frozen=True, kw_only=True)
class LossSettings:
    """Where to write, and after how many losses the program ends. `eager`: nothing is compiled; `eager_graphs` are the numbers of graphs
    that run as Dynamo made them. `noise` is the seed of other rounding, `shift` is added to each seed, `same_random` draws eager's numbers
    in compiled code.
    """

    directory: str
    steps: int
    eager: bool = False
    eager_graphs: tuple[int, ...] = ()
    noise: int = 0
    shift: int = 0
    same_random: bool = False

    def dumps(self) -> str:
        """The value of the environment variable."""
        return json.dumps(asdict(self))


def from_environment(environment: Mapping[str, str] = os.environ) -> LossSettings | None:
    """The settings of the parent; None when nobody asks or the value is not ours."""
    try:
        found = json.loads(environment[VARIABLE])
        return LossSettings(**{**found, "eager_graphs": tuple(found["eager_graphs"])})
    except (KeyError, ValueError, TypeError):
        return None


def start() -> None:
    """Begin when torch is imported; nothing when nobody asked for it."""
    if (wanted := from_environment()) is None:
        return
    watched: dict[str, Callable[[ModuleType], None]] = {
        "torch": lambda torch: _begin(torch, wanted),
        "numpy.random": lambda module: _begin_numpy(module, wanted.shift),
        "torch._dynamo.output_graph": lambda module: _watch_graphs(module, wanted),
    }
    ImportWatcher(watched).install()


def _begin(torch: ModuleType, wanted: LossSettings) -> None:
    """Each run draws the same numbers, unless the program seeds its generators itself or `shift` asks for others."""
    seed_generators(wanted.shift)
    if wanted.shift:
        for owner, name in ((torch, "manual_seed"), (torch.random, "manual_seed"), (random, "seed")):
            setattr(owner, name, shifted(getattr(owner, name), wanted.shift))
    if wanted.eager:
        torch.compiler.set_stance("force_eager")
    if wanted.noise:
        from dynadiag.torch_compat.dispatch.rounding import begin_noise

        begin_noise(wanted.noise, rounds=True)
    torch.autograd.backward = _Noting(torch.autograd.backward, wanted)


def _begin_numpy(module: ModuleType, shift: int) -> None:
    module.seed(shift)
    if shift:
        module.__dict__["seed"] = shifted(module.seed, shift)


def shifted(seed: Callable[..., Any], shift: int) -> Callable[..., Any]:
    """A function that seeds as if the program had been written with another number."""

    def seeding(given: Any = None, *more: Any, **named: Any) -> Any:
        return seed(given + shift if isinstance(given, int) else given, *more, **named)

    return seeding


class _Noting:
    """`torch.autograd.backward`, which `Tensor.backward` calls: notes what it begins at."""

    def __init__(self, backward: Callable[..., Any], wanted: LossSettings) -> None:
        self._backward, self._wanted = backward, wanted
        self._count = 0
        self.__doc__ = backward.__doc__

    def __call__(self, tensors: Any, *more: Any, **named: Any) -> Any:
        """Raises SystemExit behind the last loss that is wanted."""
        results = self._backward(tensors, *more, **named)
        given = tensors if isinstance(tensors, Sequence) else (tensors,)
        if len(given) == 1 and given[0].numel() == 1:
            self._count += 1
            _append(self._wanted, LOSSES, repr(float(given[0].detach())))
            if self._count >= self._wanted.steps:
                raise SystemExit(0)
        return results


def _watch_graphs(output_graph: ModuleType, wanted: LossSettings) -> None:
    """Count the graphs, and give some of them Dynamo's eager back end."""
    from dynadiag.torch_compat.dynamo.counters import eager_random_numbers
    from dynadiag.torch_compat.dynamo.user_compiler import watch_compiler

    count = 0

    def begin(graph: Any, module: Any, inputs: Callable[[], Sequence[Any]]) -> int:
        nonlocal count
        number, count = count, count + 1
        _append(wanted, GRAPHS, str(number))
        if wanted.same_random and number == 0:
            eager_random_numbers().__enter__()
        if number in wanted.eager_graphs:
            graph.compiler_fn = lambda module, inputs: module.forward
        return number

    watch_compiler(output_graph, begin)


def _append(wanted: LossSettings, name: str, line: str) -> None:
    with os.fdopen(extended(str(Path(wanted.directory, name.format(os.getpid())))), "a", encoding="utf-8") as file:
        file.write(f"{line}\n")
