"""The statements of a function that no break stands in, as a function of its own: what comes before and behind them stays where it is.

Nothing is moved: the new function is called where its statements stood, gets what they read and gives what is read of them. So Python's
effects around it (a log, a metric, an optimizer's step, random choices) keep their order and their number.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from dynadiag.changes.edits import Edit, dedented
from dynadiag.errors import EditError
from dynadiag.source.line import dotted
from dynadiag.source.program import Function, Program
from dynadiag.source.tree import calls_in, holds, ids_in, names_in, nodes_of

_BLOCKS = (ast.For, ast.While, ast.With)
_LEAVES = (ast.Return, ast.Break, ast.Continue, ast.Yield, ast.YieldFrom, ast.Await, ast.Global, ast.Nonlocal, ast.Delete, ast.Lambda)
_DEFINES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom, ast.NamedExpr)
_LEAST_WORK = 2
_OF_PYTHON = frozenset(dir(builtins))
_MADE = "{name}_compiled_part"


@dataclass(frozen=True)
class Part:
    """A part of a function as a function of its own, by its name; `lines` are those of its statements."""

    name: str
    edits: tuple[Edit, ...]
    lines: range


def outlined(file: str, program: Program, function: Function, left: Collection[int]) -> Part | None:
    """The largest part of a function whose statements have none of the lines `left`; None where none computes enough.

    Raises EditError where the text does not let it be written.
    """
    if function.decorator_list or isinstance(function, ast.AsyncFunctionDef) or holds(function, ast.Yield, ast.YieldFrom):
        return None
    runs = [run for block in _blocks(function) for run in _runs(block, left)]
    best = max(runs, key=_work, default=[])
    if _work(best) < _LEAST_WORK or (len(best) == len(function.body) and best[0] is function.body[0]):
        return None
    name = _MADE.format(name=function.name.strip("_"))
    if name in program.functions or name in names_in(program.tree):
        return None
    return _written(file, program, function, best, name)


def _blocks(function: Function) -> Iterator[list[ast.stmt]]:
    yield function.body
    for node in nodes_of(ast.stmt, *function.body):
        if isinstance(node, _BLOCKS):
            yield node.body


def _runs(block: Sequence[ast.stmt], left: Collection[int]) -> Iterator[list[ast.stmt]]:
    """The statements of a block that follow on each other and may become a function."""
    run: list[ast.stmt] = []
    for statement in block:
        if _may_move(statement, left):
            run.append(statement)
        else:
            yield run
            run = []
    yield run


def _may_move(statement: ast.stmt, left: Collection[int]) -> bool:
    rows = set(range(statement.lineno, (statement.end_lineno or statement.lineno) + 1))
    if not rows.isdisjoint(left) or holds(statement, *_LEAVES, *_DEFINES, ast.Try, ast.Raise, ast.Assert):
        return False
    calls = list(calls_in(statement))
    if isinstance(statement, ast.Expr) and not calls:
        return False  # a docstring
    if isinstance(statement, ast.Expr) or any(dotted(call.func) in ("super", "locals", "print", "float", "int") for call in calls):
        return False  # done for its effect, or a number is read
    stores = (node for node in nodes_of(ast.expr, statement) if isinstance(node, ast.Attribute | ast.Subscript))
    return not any(isinstance(node.ctx, ast.Store) for node in stores)


def _work(run: Sequence[ast.stmt]) -> int:
    """How much a part computes: its calls, but for Python's own functions, and its operators where it calls anything."""
    calls = [call for call in calls_in(*run) if not (isinstance(call.func, ast.Name) and call.func.id in _OF_PYTHON)]
    return len(calls) + sum(1 for _ in nodes_of(ast.BinOp, *run)) if calls else 0


def _written(file: str, program: Program, function: Function, part: Sequence[ast.stmt], name: str) -> Part:
    first, last = part[0], part[-1]
    rows = range(first.lineno, (last.end_lineno or last.lineno) + 1)
    inside = ids_in(*part)
    stored = {node.id for node in nodes_of(ast.Name, *part) if isinstance(node.ctx, ast.Store)}
    stored -= {node.id for each in nodes_of(ast.comprehension, *part) for node in nodes_of(ast.Name, each.target)}
    arguments = [item.arg for item in nodes_of(ast.arg, function.args)]
    around = [node for node in nodes_of(ast.Name, *function.body) if id(node) not in inside]
    before = {*arguments, *(node.id for node in around if isinstance(node.ctx, ast.Store))}
    added = {id(node.target) for node in nodes_of(ast.AugAssign, *part)}
    reads = [node for node in nodes_of(ast.Name, *part) if isinstance(node.ctx, ast.Load) or id(node) in added]
    in_order = sorted(reads, key=lambda node: (node.lineno, node.col_offset))
    given = [read for read in dict.fromkeys(node.id for node in in_order) if read in before and read != "self"]
    read_outside = {node.id for node in around if isinstance(node.ctx, ast.Load)}
    made = sorted(name for name in stored if name in read_outside or name in given)
    if not made:
        raise EditError("nothing is read of what the part computes")
    method = program.class_around(function) is not None and arguments[:1] == ["self"]
    receiver, own = ("self.", ["self"]) if method else ("", [])
    code = dedented(program.text, rows)
    if any(isinstance(node.value, str) and "\n" in node.value for node in nodes_of(ast.Constant, *part)):
        raise EditError("a text over several lines stands there")
    results = ", ".join(made)
    below = [""] if method else ["", ""]
    define = (f"def {name}({', '.join([*own, *given])}):", *(f"    {row}" if row else row for row in code), f"    return {results}", *below)
    call = f"{results} = {receiver}{name}({', '.join(given)})"
    edits = (Edit(file=file, old=(), new=define, near=function.lineno), Edit(file=file, old=code, new=(call,), near=first.lineno))
    return Part(name=name, edits=edits, lines=rows)
