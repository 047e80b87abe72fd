"""Events of torch's older profiler counted: operators outside graphs, graphs and compiled regions of one call."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

GRAPH = "dynadiag graph"
GLUE = "dynadiag glue"
"""What Dynamo does to call a graph, or torch to show a tensor: none of the program's work."""

_LOOKUP = "TorchDynamo Cache Lookup"  # guards look at values through operators (`torch/csrc/dynamo/eval_frame_cpp.cpp`, 2.6 to 2.15)
_REGION = "Torch-Compiled Region: "
# What autograd's engine calls each step of a backward (`torch/csrc/autograd/engine.cpp`, 2.6 to 2.15).
_BACKWARD = "autograd::engine::evaluate_function"
_OPERATOR = re.compile(r"[A-Za-z_]\w*::[A-Za-z_][\w.]*\Z")
_NO_WORK = "profiler::"
_FUNCTION_SCOPE = 0  # `at::RecordScope::FUNCTION`


@dataclass
class Dispatched:
    """What one call did: operators that it dispatched outside graphs, and how often each compiled region and its graph ran."""

    outside: int = 0
    regions: Counter[str] = field(default_factory=Counter)
    graphs: Counter[str] = field(default_factory=Counter)


def count_dispatched(threads: Iterable[Iterable[Any]], counts: Callable[[Any], bool] | None = None) -> Dispatched:
    """Count what `_disable_profiler_legacy` gave: for each thread its events in order; operators outside graphs only if `counts` says so.

    An operator that another one dispatches is not counted, and neither is what a backward, a graph or Dynamo itself does. Backward
    graphs are no graphs here: they have no region of their own.
    """
    found = Dispatched()
    known: dict[str, bool] = {}
    for events in threads:
        _count_thread(events, found, known, counts)
    return found


def _count_thread(events: Iterable[Any], found: Dispatched, known: dict[str, bool], counts: Callable[[Any], bool] | None) -> None:
    names: list[str] = []
    regions: list[str] = []
    inside = 0  # from this depth on nothing is counted; 0 where everything is
    for event in events:
        kind = event.kind()
        if kind == "pop" and names:
            if len(names) == inside:
                inside = 0
            if names.pop().startswith(_REGION) and regions:
                regions.pop()
        elif kind == "push":
            name = event.name()
            names.append(name)
            if name.startswith(_REGION):
                regions.append(name[len(_REGION) :])
            if inside:
                continue
            if name.startswith(_REGION + "!"):  # compiled autograd: a backward
                inside = len(names)
            elif name == GRAPH:
                found.graphs[regions[-1] if regions else ""] += 1
                inside = len(names)
            elif name.startswith(_REGION):
                found.regions[regions[-1]] += 1
            elif name in (GLUE, _LOOKUP) or name.startswith(_BACKWARD):
                inside = len(names)
            elif _is_operator(event, name, known):
                found.outside += counts is None or counts(event)
                inside = len(names)


def _is_operator(event: Any, name: str, known: dict[str, bool]) -> bool:
    """Whether torch has an operator of that name: a program may name parts of its own so."""
    if name not in known:
        known[name] = bool(
            _OPERATOR.match(name) and not name.startswith(_NO_WORK) and sys.modules["torch"]._C._jit_get_schemas_for_operator(name)
        )
    return known[name] and getattr(event, "scope", int)() == _FUNCTION_SCOPE
