"""What compiled code reads from outside (a clock, random numbers of Python, NumPy or a generator) read before the call: an idea."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dynadiag.changes.compiled_function import CompiledFunction
from dynadiag.facts.wording import listed, short_place
from dynadiag.model.report import Advice
from dynadiag.source.line import SourceLine, dotted, root_of
from dynadiag.source.place import Place
from dynadiag.source.torch_names import is_of_torch
from dynadiag.source.tree import calls_in, nodes_of, reads_in
from dynadiag.source.uses import scalar_calls

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


def read_before_call(line: SourceLine, place: Place, compiled: CompiledFunction) -> Iterator[Advice]:
    """Give the compiled function the number, where what it is read from comes from outside as it is."""
    statement = place.statement()
    if statement is None or compiled.place.node is not place.node:
        return
    inside = {node.target.id: dotted(node.iter) for node in nodes_of(ast.comprehension, statement) if isinstance(node.target, ast.Name)}
    read = [call.args[0] if call.args else call.func for call in scalar_calls(line)]
    read += [node.slice for node in line.nodes if isinstance(node, ast.Subscript) and not read and not place.is_tensor(node.value)]
    names = [root_of(node) for node in read]
    given = list(dict.fromkeys(inside.get(name) or name for name in names if name is not None))
    if not given or any(name not in place.parameters or name in place.index.stores for name in given):
        return
    where = "" if compiled.call is None else f" ({short_place(compiled.call)})"
    several = " as a list, `.tolist()`," if inside else ""
    yield Advice(
        slug=BEFORE,
        text=f"{listed([f'`{name}`' for name in given], limit=3)} comes from outside as it is: read the number there, before the "
        f"call{where}, and give `{compiled.name}` that number{several} instead of the tensor. Check how many values there are: what Python "
        "has to know, as an index or a bound, is compiled for each of them",
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
