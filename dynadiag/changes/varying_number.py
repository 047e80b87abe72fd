"""A Python number that varies, given to the compiled function as a tensor without dimensions, at all of its calls.

torch makes a float a symbol when it varies, but compiles its values in where they reach no operator of the graph
(`remove_tensorify_specialized_graphargs`, torch 2.15). A tensor of type float64 computes what the number does, and no guard has its value.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Sequence

from dynadiag.changes.edits import Edit, with_parts
from dynadiag.changes.kinds import Kind
from dynadiag.errors import EditError
from dynadiag.source.program import Function, Program, argument, parameters_of_calls, program_of
from dynadiag.source.tree import mentions, nodes_of

SLUG = "tensor-argument"
_NUMBER = re.compile(r"-?(?:\d+(?:\.\d*)?(?:e[-+]?\d+)?|inf)")
_INTEGER = re.compile(r"-?\d+")


def is_float(values: Sequence[str]) -> bool:
    """Whether values that a guard had are numbers, and not integers alone."""
    return bool(values) and all(map(_NUMBER.fullmatch, values)) and not all(map(_INTEGER.fullmatch, values))


def as_tensors(file: str, text: str, function: str, row: int, names: Collection[str], number: str) -> tuple[Edit, ...]:
    """The edits that give parameters of the function around a row as tensors.

    `number` is what makes such a tensor in the runs of a proof. Raises EditError where the file does not show what the calls give.
    """
    program = program_of(text)
    node = _function_at(program, function, row)
    _check_errors(node, names)
    given: dict[ast.stmt, list[ast.expr]] = {}
    for call in program.callers(node):
        if program.scope_of(call) is node:
            continue
        if any(isinstance(item, ast.Starred) for item in call.args) or any(word.arg is None for word in call.keywords):
            raise EditError(f"a call of `{function}` does not show which arguments it gives")
        values = [value for name in names if (value := argument(call, node, name)) is not None]
        given.setdefault(program.statement_of(call), []).extend(values)
    if not any(given.values()):
        raise EditError(f"no call of `{function}` in the file gives {' or '.join(f'`{name}`' for name in names)}")
    return tuple(_edit(file, text, statement, values, number) for statement, values in given.items() if values)


def names_in_state(text: str, function: str, row: int, names: Collection[str]) -> tuple[str, ...]:
    """What the state of a call names the tensors that these parameters are given: `lr`, `arguments[1]`."""
    places = enumerate(parameters_of_calls(_function_at(program_of(text), function, row)))
    return (*names, *(f"arguments[{place}]" for place, name in places if name in names))


def _function_at(program: Program, name: str, row: int) -> Function:
    found = [node for node in nodes_of(ast.FunctionDef, program.tree) if node.name == name]
    found = [node for node in found if min([node.lineno, *(item.lineno for item in node.decorator_list)]) <= row <= (node.end_lineno or 0)]
    if not found:
        raise EditError(f"`{name}` is no function of the file")
    return max(found, key=lambda node: node.lineno)


def _check_errors(function: Function, names: Collection[str]) -> None:
    """Raise EditError where Python may raise an error for a number, and torch gives a tensor that is not finite."""
    for node in nodes_of(ast.BinOp, function):
        divides = isinstance(node.op, ast.Div | ast.FloorDiv | ast.Mod) and mentions(names, node.right)
        others = [inner for inner in nodes_of(ast.Name, node.left) if inner.id not in names]
        powers = isinstance(node.op, ast.Pow) and mentions(names, node.left) and not isinstance(node.right, ast.Constant)
        if (divides and not others) or powers:
            raise EditError(f"`{ast.unparse(node)}` raises an error for some numbers, and not for tensors")


def _edit(file: str, text: str, statement: ast.stmt, values: Collection[ast.expr], number: str) -> Edit:
    old, new = with_parts(text, statement, [(value, "torch.tensor({}, dtype=torch.float64)".format) for value in values])
    _, observed = with_parts(text, statement, [(value, f"{number}({{}})".format) for value in values])
    return Edit(file=file, old=old, new=new, near=statement.lineno, observed=observed)


KINDS = (
    Kind(
        slugs=(SLUG,),
        applied="rule",
        does="a float that is another one in each call is given as a tensor, so that none of its values is compiled in",
        asks="torch recompiled more than once for it, the file shows what each call gives, and nothing is divided by it but tensors",
    ),
)
