"""What each kind of change (its slug) means: the one table, made of the rows (`KINDS`) that stand with the changes.

Advice asks what a change joins or leaves out, `fix` asks what it may try and what that gives up, and the pages about `fix` are made of it.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

_WITH_ADVICE: Final = ("branch", "calls", "copy", "library_cure", "message", "number", "recompile", "shape", "train_step")
"""The files whose changes advice names, which all import nothing heavy. The others are for `fix` alone."""
CAPTURES: Final[Mapping[str, str]] = {
    "scalar read": "capture_scalar_outputs",
    "dynamic shape operator": "capture_dynamic_output_shape_ops",
}
"""Options of torch by the category of breaks that they may end: also tried where no advice is for it, since a proof decides."""

SKIPS: Final = "compiled calls no longer do this"
SETS_OPTION: Final = "an option of `torch._dynamo.config`, behind the script's imports"
IMPORTS_TORCH: Final = "the script begins with `import torch` among its imports"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """What the slugs of a kind of change mean.

    `applied`: `fix` takes the lines of the advice (`rewrite`), sets its option (`option`), or has a rule of its own (`rule`); else it is
    left to the user. `does` and `asks` are how the documentation says what it does and what has to hold before it is tried, `gives_up` is
    what else changes (None: nothing), so that `fix` asks for `--unsafe`. `joins`: what is before and behind the line comes into one graph.
    `leaves_out`: compiled calls leave out something that the program does. `selects`: both sides of a branch are computed and one is
    selected. `keeps_tensor`: a tensor takes the place of a number that was read. `prints`: it also needs the option by which Dynamo prints
    after the graph. `keeps_first`: the first recompile stays, since torch makes dynamic only what has changed once.
    """

    slugs: tuple[str, ...]
    applied: Literal["rewrite", "option", "rule"] | None = None
    does: str = ""
    asks: str = ""
    gives_up: str | None = None
    joins: bool = True
    leaves_out: bool = False
    selects: bool = False
    keeps_tensor: bool = False
    prints: bool = False
    keeps_first: bool = False

    @property
    def is_safe_advice(self) -> bool:
        """Whether `fix` applies the advice without being asked for it."""
        return self.applied in ("rewrite", "option") and self.gives_up is None


@functools.cache
def _advised() -> Mapping[str, Kind]:
    return {slug: kind for name in _WITH_ADVICE for kind in _rows_of(name) for slug in kind.slugs}


def kind_of(slug: str) -> Kind:
    """What an advice means; one without a row is left to the user."""
    return _advised().get(slug) or Kind(slugs=(slug,))


def all_kinds() -> Iterator[Kind]:
    """All rows: those of advice, then those that `fix` alone has, each in the order of the files."""
    package = importlib.import_module("dynadiag.changes")
    names = sorted(module.name for module in pkgutil.iter_modules(package.__path__))
    for name in (*_WITH_ADVICE, *(name for name in names if name not in _WITH_ADVICE)):
        yield from _rows_of(name)


def _rows_of(name: str) -> tuple[Kind, ...]:
    rows: tuple[Kind, ...] = getattr(importlib.import_module(f"dynadiag.changes.{name}"), "KINDS", ())
    return rows
