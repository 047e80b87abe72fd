"""The table that a bug report wants: the reproducer with each layer of the compiler, with static and with dynamic sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from dynadiag.reduce.core.failure import Failure
from dynadiag.reduce.graphs.candidate import Candidate
from dynadiag.reduce.graphs.judge import Observation, observe_isolated
from dynadiag.reduce.graphs.setting import INNER, Setting, compiler_name
from dynadiag.torch_compat.dynamo.compiling import LAYERS

SIZES = {"static": False, "dynamic": True}
"""The columns: what `torch.compile(dynamic=...)` is given."""
_TAKES_SIZES = "the inner compiler uses the sizes as they are"
Stop = Callable[[], "str | None"]


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One run in a process of its own: `said` is "fails", "passes", "fails differently: ..." or "not run: why"."""

    backend: str
    sizes: str
    said: str


_NOT_NEEDED = "not run: not needed for the answer (--ablation runs it)"


def cells_of(steps: Mapping[str, str], setting: Setting) -> tuple[Cell, ...]:
    """The table from the layers that were asked to find the guilty one, with the sizes of the script; no other is run."""
    own = compiler_name(setting)
    asked = "dynamic" if setting.dynamic else "static"
    cells = []
    for backend in (*LAYERS, *(() if own in LAYERS else (own,))):
        said = steps.get(backend, _NOT_NEEDED).replace("another failure:", "fails differently:", 1)
        cells += [Cell(backend=backend, sizes=sizes, said=said if sizes == asked else _NOT_NEEDED) for sizes in SIZES]
    return tuple(cells)


def ablate(candidate: Candidate, setting: Setting, failure: Failure, *, timeout_s: float, stop: Stop = lambda: None) -> tuple[Cell, ...]:
    """A cell for each layer of torch's compiler, and for the user's own backend, with static and dynamic sizes.

    `stop` is asked before each cell; a reason that it gives is written into this cell and all that follow.
    """
    own = compiler_name(setting)
    cells: list[Cell] = []
    for backend in (*LAYERS, *(() if own in LAYERS else (own,))):
        for sizes, dynamic in SIZES.items():
            why = stop() or (_TAKES_SIZES if backend == INNER and dynamic else None)
            said = f"not run: {why}" if why else _describe(_run(candidate, setting, backend, dynamic, timeout_s), failure)
            cells.append(Cell(backend=backend, sizes=sizes, said=said))
    return tuple(cells)


def _run(candidate: Candidate, setting: Setting, backend: str, dynamic: bool, timeout_s: float) -> Observation:
    """Modes and options belong to the backend that the user chose."""
    if backend == compiler_name(setting):
        return observe_isolated(candidate, replace(setting, dynamic=dynamic), timeout_s=timeout_s)
    other = replace(setting, backend=backend, dynamic=dynamic, mode=None, options={}, backend_source=None, inner=False)
    return observe_isolated(candidate, other, timeout_s=timeout_s)


def _describe(seen: Observation, failure: Failure) -> str:
    if seen.invalid is not None:
        return f"not run: {seen.invalid}"
    if seen.failure is None:
        return "passes"
    return "fails" if seen.failure.like(failure) else f"fails differently: {seen.failure.title()}"
