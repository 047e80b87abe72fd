"""What compiled code reads from outside (a clock, random numbers of Python, NumPy or a generator) read before the call: an idea."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dynadiag.changes.compiled_function import CompiledFunction
from dynadiag.facts.wording import listed, short_place
from dynadiag.model.report import Advice
from dynadiag.source.line import dotted
from dynadiag.source.place import Place
from dynadiag.source.torch_names import is_of_torch
from dynadiag.source.tree import calls_in, nodes_of, reads_in

BEFORE = "before-call"
_DRAWS = re.compile(
    r"(?:^|\.)(?:random|rng|gen|generator)\.(?:uniform|randint|random|choice|choices|sample|shuffle|normal|integers|randrange|gauss|rand|randn|permutation)$"
)
_CLOCK = re.compile(r"^(?:time|datetime)\.|^(?:perf_counter|monotonic)$")


def draws_numbers(statement: ast.AST) -> list[ast.Call]:
    """The calls of a statement that draw numbers with Python, NumPy or a generator of theirs."""
    return [
        call for call in calls_in(statement) if (name := dotted(call.func)) is not None and not is_of_torch(name) and _DRAWS.search(name)
    ]


def before_call(place: Place, compiled: CompiledFunction | None) -> Iterator[Advice]:
    """Draw before the call of the compiled function, or take the time around it."""
    inner = [node for node in place.index.body if isinstance(node, ast.stmt) and node.lineno <= place.row <= (node.end_lineno or 0)]
    statement = max(inner, key=lambda node: node.lineno, default=None)
    if statement is None:
        return
    where = "" if compiled is None or compiled.call is None else f" ({short_place(compiled.call)})"
    drawn = draws_numbers(statement) or _drawn_before(place, statement)
    if drawn:
        calls = listed(list(dict.fromkeys(f"`{place.text(call)}`" for call in drawn)), limit=3)
        name = "it" if compiled is None else f"`{compiled.name}`"
        yield Advice(
            slug=BEFORE,
            text=f"{calls} draws another number in each call, which Python decides and a graph cannot hold. Do this, and what slices or "
            f"sizes by "
            f"it, in plain Python before the call{where}, and give {name} the tensors that it makes; a number that it only computes "
            f"with goes in "
            "as a tensor",
            how_sure="idea",
        )
    elif any(_CLOCK.search(dotted(call.func) or "") for call in calls_in(statement)):
        yield Advice(
            slug=BEFORE,
            text=f"Take the time around the call{where} instead: `{place.text(statement)}` before it, and what reads the time behind "
            f"it. On a GPU "
            "wait with `torch.cuda.synchronize()` before each reading",
            how_sure="idea",
        )


def _drawn_before(place: Place, statement: ast.stmt) -> list[ast.Call]:
    """What was drawn for a name that the statement reads."""
    names = reads_in(statement)
    values = [value for name in sorted(names) for value in place.values(name)]
    for assign in (node for node in nodes_of(ast.Assign, place.node) if any(isinstance(target, ast.Tuple) for target in node.targets)):
        bound = {node.id for target in assign.targets for node in nodes_of(ast.Name, target)}
        values += [assign.value] if bound & names else []
    return [call for value in values for call in draws_numbers(value)]
