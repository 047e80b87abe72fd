"""Ideas for recompiles: where the number, list or dictionary that varies is written, and what to write instead."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from dynadiag.changes.compiled_function import CompiledFunction, compiled_function
from dynadiag.changes.defer_effect import defer_effect
from dynadiag.changes.plain_loop import counted_loop
from dynadiag.facts.guard_sources import root_name
from dynadiag.facts.statements import recorded_functions
from dynadiag.facts.user_frames import entry_stack, is_own_file, resume_line
from dynadiag.facts.wording import listed, short_place
from dynadiag.model.location import Location
from dynadiag.model.report import Advice, Transition
from dynadiag.model.run import Frame, Run
from dynadiag.source.function import parse_function
from dynadiag.source.imports import imports_of
from dynadiag.source.line import dotted
from dynadiag.source.place import Place
from dynadiag.source.tree import names_in, nodes_of

CURE_BREAK = "cure-break-first"
AS_TENSOR = "tensor-argument"  # what `fix` tries of it: `changes.varying_number`
IN_BUFFER = "number-in-buffer"
NO_CACHE = "no-cache-by-size"
CALL_FIRST = "call-before-threads"
KEPT_STATIC = "size-kept-static"
_OUTSIDE = frozenset(("length", "condition"))
_LENGTH = re.compile(r"^len\((.+)\)$")
_NUMBER = re.compile(r"-?(?:\d|inf|nan)")


def recompile_ideas(rows: Sequence[Transition], frame: Frame, run: Run) -> Iterator[Advice]:
    """What to try for the rows of one finding: first what lies outside of the function, then those with the most recompiles."""
    ordered = sorted(rows, key=lambda row: (row.kind not in _OUTSIDE, -len(row.recompiles)))
    line, compiled = resume_line(frame.name), compiled_function(entry_stack(frame), run)
    for row in ordered:
        if line is None or row.kind in _OUTSIDE:
            yield from _of_row(row, frame, compiled, run)
    if line is not None:
        yield Advice(
            slug=CURE_BREAK,
            text=f"This part of the function is compiled on its own because of the break at line {line}, and what it is given from "
            f"before it "
            "changed. Cure that break first: without it there is no such part",
            how_sure="idea",
        )


def _of_row(row: Transition, frame: Frame, compiled: CompiledFunction | None, run: Run) -> Iterator[Advice]:
    length = _LENGTH.match(row.source)
    name = length[1] if length else row.source
    written = list(_written_at(name, frame, run)) if row.kind in ("length", "value", "condition") else []
    for place, _ in written:
        if compiled is not None and place.node.name == compiled.place.node.name:
            yield from defer_effect(replace(compiled, place=replace(compiled.place, row=place.row)))
    if row.kind == "value" and _is_number(row) and not (row.became_dynamic and len(row.recompiles) < 2):
        yield from _number(row, frame, compiled, written)
    elif row.kind == "size":
        cached = list(_cached_by_size(frame, run))
        yield from cached or _kept_static(row)
    elif row.kind == "unexpected":
        yield Advice(
            slug=CALL_FIRST,
            text=f"Call `{frame.name}` once, with inputs of each kind, before the threads start that call it together: they wait for one "
            "compilation, and then each compiles what the first has made already",
            how_sure="idea",
        )


def _is_number(row: Transition) -> bool:
    return bool(row.values) and all(_NUMBER.match(value) for value in row.values)


def _number(row: Transition, frame: Frame, compiled: CompiledFunction | None, written: list[tuple[Place, Location]]) -> Iterator[Advice]:
    own = compiled if compiled is not None and compiled.name.rpartition(".")[2] == frame.name else None
    if own is not None:
        yield from counted_loop(row.source, own)
    root = root_name(row.source)
    values = ", ".join(row.values[:3])
    if root is not None and "." not in row.source and "[" not in row.source:
        where = " where it is called" if own is None or own.call is None else f" at its calls ({short_place(own.call)})"
        yield Advice(
            slug=AS_TENSOR,
            text=f"`{row.source}` is a Python number that is another one in each call ({values}, ...), and each may be compiled. Give "
            f"`{frame.name}` a tensor "
            f"instead{where}: `torch.tensor({row.source}, dtype=torch.float64)`, made outside of the compiled function. Check that it only "
            "computes with it",
            how_sure="idea",
        )
    elif written and root == "self":
        attribute = row.source.rpartition(".")[2]
        lines = listed([f"`{_text(place)}` ({short_place(at)})" for place, at in written], limit=3)
        yield Advice(
            slug=IN_BUFFER,
            text=f"{lines} changes a number that is compiled in ({values}, ...). Keep it in a tensor: in `__init__` "
            f'`self.register_buffer("{attribute}", torch.tensor({_first(row)}))` (of no module: '
            f"`self.{attribute} = torch.tensor({_first(row)})`), here "
            f"`self.{attribute}.add_(...)`, `copy_` or `fill_`; write an `if` on it as `torch.where`. Or count outside of the compiled "
            f"function",
            how_sure="idea",
        )
    elif not written and "." in row.source and "[" not in row.source:
        owner, _, attribute = row.source.rpartition(".")
        yield Advice(
            slug=IN_BUFFER,
            text=f"`{row.source}` is a Python number that is compiled in ({values}). Where the function only computes with it, keep it "
            f'in a tensor: `{owner}.{attribute} = torch.tensor({_first(row)})`, in a module `register_buffer("{attribute}", ...)`. '
            f"Where each of a few objects has its own, set `torch._dynamo.config.recompile_limit` to their number: compiled code is "
            f"shared by all objects of a class",
            how_sure="idea",
        )


def _first(row: Transition) -> str:
    return row.values[0]


def _text(place: Place) -> str:
    statement = place.statement()
    return "" if statement is None else place.text(statement).splitlines()[0]


def _written_at(name: str, frame: Frame, run: Run) -> Iterator[tuple[Place, Location]]:
    """The recorded statements that change what a guard names: an attribute of the same last name, a list by a method."""
    last = name.rpartition(".")[2]
    for source in recorded_functions(frame.file or "", run):
        function = parse_function(source.text, imports_of(source.file, run))
        if function is None or source.name.endswith("__init__"):
            continue
        for statement in nodes_of(ast.stmt, *function.node.body):
            if _writes(statement, last, plain="." not in name):
                place = Place(function.node, function.code, imports=function.imports, row=statement.lineno)
                yield place, Location(source.file, source.line + statement.lineno - 1, source.name)


def _writes(statement: ast.stmt, last: str, *, plain: bool) -> bool:
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call) and isinstance(statement.value.func, ast.Attribute):
        method, owner = statement.value.func.attr, ast.unparse(statement.value.func.value)
        return method in ("append", "appendleft", "extend", "add", "update") and owner.rpartition(".")[2] == last
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target] if isinstance(statement, ast.AugAssign) else []
    parts = [part for target in targets for part in (target.elts if isinstance(target, ast.Tuple) else [target])]
    return any(isinstance(part, ast.Attribute) and part.attr == last for part in parts) and not plain


def _kept_static(row: Transition) -> Iterator[Advice]:
    """What keeps a size fixed, where no recorded line shows it: torch makes a size dynamic at its first change."""
    if row.became_dynamic or not (row.limit_hit or len(row.recompiles) > 1) or row.values[:1] in (("0",), ("1",)):
        return
    yield Advice(
        slug=KEPT_STATIC,
        text=f"torch makes a size dynamic when it has changed once, so something keeps `{row.source}` fixed. Look for `dynamic=False`, "
        "`mark_static`, a parameter (its sizes are static unless `torch._dynamo.config.force_parameter_static_shapes = False`), and for "
        "code that needs the number itself: `range`, `int`, a key of a dictionary",
        how_sure="idea",
    )


def _cached_by_size(frame: Frame, run: Run) -> Iterator[Advice]:
    """A dictionary that a function of the same file looks sizes up in: each size is a constant of its version then."""
    for source in recorded_functions(frame.file or "", run):
        function = parse_function(source.text, imports_of(source.file, run)) if is_own_file(source.file, run) else None
        if function is None:
            continue
        for test in function.nodes(ast.Compare):
            container = dotted(test.comparators[0])
            asked = isinstance(test.ops[0], ast.In | ast.NotIn) and container is not None and not isinstance(test.left, ast.Constant)
            kept = [node for node in function.nodes(ast.Subscript) if isinstance(node.ctx, ast.Store) and dotted(node.value) == container]
            if asked and kept and names_in(test.left) <= set(function.index.arguments) | set(function.index.stores):
                at = Location(source.file, source.line + test.lineno - 1, source.name)
                value = next((node.value for node in function.nodes(ast.Assign) if kept[0] in node.targets), None)
                made = "" if value is None else f": write `{function.text(value)}` where `{container}` is read"
                yield Advice(
                    slug=NO_CACHE,
                    text=f"`{container}` ({short_place(at)}) is looked up by `{function.text(test.left)}`, so that a number there is a "
                    f"constant of its version and "
                    f"each one is compiled. Compute instead of keeping{made}; in a compiled function that costs little",
                    how_sure="idea",
                )
                return
