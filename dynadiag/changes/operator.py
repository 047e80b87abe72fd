"""Statements that only write into tensors which the function has just made: one operator, which Dynamo does not look into.

`for i in range(places.shape[0]): mask[places[i]] = True`, with `places = torch.nonzero(x)` before it, cannot be traced: how often it runs
is in the data. As an operator of `torch.library` it runs as it is written, uncompiled, and the graph goes on around it. The operator has no
results but what it writes, so nothing has to be known of its shapes. It is called only while Dynamo traces, and only where no gradient is
asked for; in all other cases the statements run as before.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dynadiag.changes.edits import Edit, codes
from dynadiag.changes.kinds import Kind
from dynadiag.errors import EditError
from dynadiag.source.imports import imports_torch, parse_canonical, spelled
from dynadiag.source.line import dotted
from dynadiag.source.python_names import COMPUTES
from dynadiag.source.torch_names import AUTOCAST, DATA_DEPENDENT, FACTORIES, IN_PLACE, NEW_MEMORY, PURE, VALUES_ALONE
from dynadiag.source.tree import called_name, holds, ids_in, names_in, nodes_in, nodes_of

PREFIX = "dynadiag_operator_"
_DATA = DATA_DEPENDENT | VALUES_ALONE
_MAKES = FACTORIES | {"tensor"}
_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, kw_only=True)
class Operator:
    """The operator: its function's name, what it is given (those in `written` are written, those in `numbers` are integers), its rows."""

    name: str
    given: tuple[str, ...]
    written: tuple[str, ...]
    numbers: tuple[str, ...]
    rows: tuple[str, ...]

    @property
    def schema(self) -> str:
        """Its signature as `torch.library` writes it."""
        letters = {name: chr(ord("a") + number) for number, name in enumerate(self.written)}
        kinds = ("SymInt" if text in self.numbers else f"Tensor({letters[text]}!)" if text in letters else "Tensor" for text in self.given)
        return f"({', '.join(f'{kind} {name}' for kind, name in zip(kinds, self.given, strict=True))}) -> ()"

    @property
    def call(self) -> tuple[str, ...]:
        """The rows that call it, up to the `else:` in which the statements stand."""
        tensors = "".join(f"{name}, " for name in self.given if name not in self.numbers).rstrip()
        numbers = (f"    and isinstance({number}, int)" for number in self.numbers)
        return (
            "if (",
            "    torch.compiler.is_dynamo_compiling()",
            # In a graph of torch 2.11 `is_exporting()` is always true.
            '    and not getattr(torch.compiler, "_is_exporting_flag", False)',
            f"    and all(isinstance(one, torch.Tensor) for one in ({tensors}))",
            *numbers,
            f"    and not (torch.is_grad_enabled() and any(one.requires_grad for one in ({tensors})))",
            "):",
            f"    {self.name}({', '.join(self.given)})",
            "else:",
        )

    @property
    def definition(self) -> tuple[str, ...]:
        """The rows that define it in a module, which imports torch."""
        return (
            "",
            "",
            "@torch.library.custom_op(",
            f'    "dynadiag::{self.name}",',
            f"    mutates_args=({', '.join(map(repr, self.written))},),",
            f'    schema="{self.schema}",',
            "    tags=(torch.Tag.cudagraph_unsafe,),",
            ")",
            f"def {self.name}({', '.join(self.given)}):",
            *(f"    {row}" if row else "" for row in self.rows),
            "",
            "",
        )


def as_operator(file: str, text: str, row: int) -> tuple[Edit, Edit]:
    """The statements around a row as an operator: the edit where they stand, and the one that defines it behind the imports.

    Raises EditError where they give something else than what they write, write a tensor that the function has not just made, may have
    another effect, or use what an operator cannot be given.
    """
    tree, _ = parse_canonical(text)
    function, block, at = _block(tree, row)
    members = _closed(function, block, at)
    first, last = members[0], members[-1]
    inside = [block[member] for member in members]
    between = [block[index] for index in range(first, last) if index not in members]
    written = _written(function, inside)
    _check_order(inside, between)
    given = _given(tree, function, inside)
    apart = [item for item in given if item not in written]
    for node in _assigned(function, inside):
        shared = names_in(node.value) & set(written)
        if shared and _targets(node) & set(apart):
            raise EditError(f"`{spelled(node)}` may share memory with `{min(shared)}`, which is written")
    numbers = tuple(element for element in given if element not in written and _is_number(function, element))
    lines = range(block[first].lineno, (block[last].end_lineno or block[last].lineno) + 1)
    rows = dict(enumerate(codes(text, lines), start=first))
    if len(rows) != last + 1 - first:
        raise EditError("the lines share a line with other statements")
    body = [line for number in members for line in rows[number]]
    name = f"{PREFIX}{function.name.strip('_')[:24]}_{hashlib.sha256(chr(10).join(body).encode()).hexdigest()[:8]}"
    made = Operator(name=name, given=given, written=written, numbers=numbers, rows=tuple(body))
    kept = [line for entry in range(first, last) if entry not in members for line in rows[entry]]
    new = (*kept, *made.call, *(f"    {line}" if line else "" for line in body))
    old = tuple(line for one in range(first, last + 1) for line in rows[one])
    return Edit(file=file, old=old, new=new, near=block[first].lineno), Edit(file=file, old=(), new=made.definition)


def _block(tree: ast.Module, row: int) -> tuple[_Function, list[ast.stmt], int]:
    """The function around a row, the block that holds the outermost loop around it or its statement, and where in the block."""
    function: _Function | None = None
    found: tuple[list[ast.stmt], int] | None = None
    block: list[ast.stmt] = tree.body
    while True:
        at = next((at for at, statement in enumerate(block) if statement.lineno <= row <= (statement.end_lineno or statement.lineno)), None)
        if at is None:
            break
        node = block[at]
        if isinstance(node, _Function):
            function, found = node, None
        elif function is not None:
            found = block, at
            if isinstance(node, ast.For | ast.While):
                break
        inside = [getattr(node, name) for name in ("body", "orelse") if isinstance(getattr(node, name, None), list)]
        block = next((item for item in inside if item and item[0].lineno <= row <= (item[-1].end_lineno or 0)), [])
    if function is None or found is None:
        raise EditError("the line is in no function")
    if holds(function, ast.Global, ast.Nonlocal, ast.Yield, ast.YieldFrom, ast.Await):
        raise EditError("the function writes names of another scope, or is suspended")
    return function, *found


def _closed(function: _Function, block: Sequence[ast.stmt], at: int) -> list[int]:
    """The statements that belong together: what one assigns is read by these alone. Raises EditError where there are no such."""
    members = {at}
    while True:
        outside = _loads(function) - _count(_loads(statement) for statement in (block[each] for each in members))
        stored = {name for member in members for name in _stored(block[member])}
        left = {name for name, count in outside.items() if count > 0} & stored
        readers = [index for index in range(at + 1, len(block)) if index not in members and left & set(_loads(block[index]))]
        before = [number for number in range(max(members)) if number not in members and _only_for(function, block, number, members)]
        if readers and not isinstance(block[readers[0]], ast.Return):
            members.add(readers[0])
        elif left:
            raise EditError(f"`{min(left)}` is used after the lines that depend on data")
        elif before:
            members.add(before[-1])
        else:
            return sorted(members)


def _only_for(function: _Function, block: Sequence[ast.stmt], at: int, members: set[int]) -> bool:
    """Whether a statement gives these statements alone what depends on data, or a number to begin with."""
    statement = block[at]
    if (
        not isinstance(statement, ast.Assign)
        or not _targets(statement)
        or not all(isinstance(each, ast.Name) for each in statement.targets)
    ):
        return False
    reads = any(each.attr in _DATA for each in nodes_of(ast.Attribute, statement.value))
    loads = _count(_loads(block[each]) for each in members)
    alone = all(loads[name] == count for name, count in _loads(function).items() if name in _targets(statement))
    return (reads or isinstance(statement.value, ast.Constant)) and alone and any(loads[name] for name in _targets(statement))


class _Count(dict[str, int]):
    def __missing__(self, name: str) -> int:
        return 0

    def __sub__(self, other: Mapping[str, int]) -> dict[str, int]:
        return {name: count - other[name] for name, count in self.items()}


def _count(all_: Iterator[_Count]) -> _Count:
    found = _Count()
    for item in all_:
        for name, count in item.items():
            found[name] += count
    return found


def _loads(node: ast.AST) -> _Count:
    """How often each name is read; what is added to in place is read as well."""
    found = _Count()
    for child in nodes_in(node):
        if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Load):
            found[child.id] += 1
    return found


def _stored(node: ast.AST) -> set[str]:
    return {child.id for child in nodes_of(ast.Name, node) if not isinstance(child.ctx, ast.Load)}


def _targets(statement: ast.Assign) -> set[str]:
    return {name for target in statement.targets for name in _stored(target)}


def _assigned(function: _Function, inside: Sequence[ast.stmt]) -> list[ast.Assign]:
    """The assignments of the function outside of these statements."""
    within = ids_in(*inside)
    return [child for child in nodes_of(ast.Assign, function) if id(child) not in within]


def _written(function: _Function, inside: Sequence[ast.stmt]) -> tuple[str, ...]:
    """The names of the tensors that the statements write. Raises EditError for any other effect."""
    local = {name for statement in inside for name in _stored(statement)}
    found: dict[str, None] = {}
    for node in (child for each in inside for child in nodes_in(each)):
        if isinstance(node, ast.stmt):
            found |= dict.fromkeys(_effects(node, inside))
        elif isinstance(node, ast.expr):
            _check_computes(node)
    for name in found:
        made = [
            descendant for descendant in nodes_of(ast.Name, function) if descendant.id == name and not isinstance(descendant.ctx, ast.Load)
        ]
        values = [part.value for part in nodes_of(ast.Assign, function) if _stored(part.targets[0]) == {name}]
        fresh = len(made) == len(values) == 1 and isinstance(values[0], ast.Call) and called_name(values[0]) in NEW_MEMORY
        if not fresh:
            raise EditError(f"`{name}` is written, and is not known to be a new tensor of the function")
    if not set(found) - local:
        raise EditError("the lines that depend on data write into no tensor that is there before")
    return tuple(name for name in found if name not in local)


def _effects(node: ast.stmt, inside: Sequence[ast.stmt]) -> Iterator[str]:
    """The names that a statement writes into. Raises EditError where it does anything but that and assign names."""
    what = f"`{spelled(node).splitlines()[0]}`"
    if isinstance(node, ast.Assign | ast.AugAssign):
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            if isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
                yield target.value.id
            elif isinstance(node, ast.AugAssign) and not (isinstance(target, ast.Name) and _counts(target.id, inside)):
                raise EditError(f"{what} may write a tensor that is another one's part")
            elif not all(isinstance(child, ast.Name | ast.Tuple | ast.List | ast.expr_context) for child in nodes_in(target)):
                raise EditError(f"{what} does more than assign names and write into tensors")
    elif isinstance(node, ast.Expr):
        call = node.value
        method = call.func if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) else None
        owner = method.value if method is not None and method.attr in IN_PLACE else None
        while isinstance(owner, ast.Subscript):
            owner = owner.value
        if not isinstance(owner, ast.Name):
            raise EditError(f"{what} does more than write into tensors")
        yield owner.id
    elif not isinstance(node, ast.For | ast.While | ast.If | ast.Break | ast.Continue | ast.Pass):
        raise EditError(f"{what} does more than write into tensors")


def _counts(name: str, inside: Sequence[ast.stmt]) -> bool:
    """Whether a name is a plain number wherever these statements assign it."""
    values = [node.value for each in inside for node in nodes_in(each) if isinstance(node, ast.Assign) and _targets(node) == {name}]
    return bool(values) and all(isinstance(expression, ast.Constant) and isinstance(expression.value, int | float) for expression in values)


def _check_computes(node: ast.expr) -> None:
    """Raise EditError where an expression may have an effect."""
    if isinstance(node, ast.Call):
        last, owner = called_name(node), dotted(node.func.value) or "" if isinstance(node.func, ast.Attribute) else None
        known = last in COMPUTES if owner is None else last in (PURE | IN_PLACE) - AUTOCAST
        foreign = owner is not None and owner.startswith(("self", "math", "numpy", "random"))
        if not known or foreign or any(keyword.arg in (None, "out", "generator") for keyword in node.keywords):
            raise EditError(f"`{spelled(node)}` may do more than compute")
        if owner == "torch" and last in _MAKES and not any(item.arg == "device" for item in node.keywords):
            raise EditError(f"`{spelled(node)}` may be made elsewhere in an operator: it names no device")
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
        raise EditError(f"`{spelled(node)}` may be computed in another type under `torch.autocast`")
    elif isinstance(node, ast.Lambda | ast.NamedExpr | ast.Await | ast.Yield | ast.YieldFrom | ast.JoinedStr | ast.GeneratorExp):
        raise EditError(f"`{spelled(node)}` may do more than compute")


def _check_order(inside: Sequence[ast.stmt], between: Sequence[ast.stmt]) -> None:
    """Raise EditError unless the statements between may come before all of these: they assign other names, from what has no effect."""
    if not between:
        return
    early = [item for item in inside if item.lineno < between[-1].lineno]
    names = {name for element in early for name in (*_loads(element), *_stored(element))}
    for statement in early:
        if not isinstance(statement, ast.Assign) or not all(isinstance(each, ast.Name | ast.Tuple) for each in statement.targets):
            raise EditError(f"`{spelled(statement).splitlines()[0]}` is not the last of the lines that depend on data")
    for child in between:
        fine = isinstance(child, ast.Assign) and all(isinstance(each, ast.Name | ast.Tuple) for each in child.targets)
        if not fine or _stored(child) & names:
            raise EditError(f"`{spelled(child).splitlines()[0]}` stands between the lines that depend on data")
        for each in nodes_in(child):
            if isinstance(each, ast.expr):
                _check_computes(each)


def _given(tree: ast.Module, function: _Function, inside: Sequence[ast.stmt]) -> tuple[str, ...]:
    """The names that the statements are given from outside. Raises EditError for what an operator cannot be given."""
    local = {name for statement in inside for name in _stored(statement)}
    arguments = function.args
    known = {posonlyarg.arg for posonlyarg in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)} | _stored(function)
    found = []
    for name in dict.fromkeys(name for child in inside for name in _loads(child)):
        if name in local:
            if any(name in _targets(node) for node in _assigned(function, inside)) or name in known - _stored(function):
                raise EditError(f"`{name}` is assigned both outside and inside of the lines that depend on data")
        elif name in known and name not in ("self", "cls"):
            found.append(name)
        elif name not in COMPUTES | {"torch"} or not imports_torch(tree):
            raise EditError(f"the lines that depend on data use `{name}`")
    return tuple(found)


def _is_number(function: _Function, name: str) -> bool:
    """Whether a name is only ever assigned a size, or a constant integer."""
    values = [node.value for node in nodes_of(ast.Assign, function) if name in _targets(node)]
    annotated = [child for child in nodes_of(ast.arg, function) if child.arg == name and child.annotation is not None]
    sizes = (
        isinstance(expression, ast.Constant) or ".shape" in ast.unparse(expression)[-12:] or ".size(" in ast.unparse(expression)[-12:]
        for expression in values
    )
    return (bool(values) and all(sizes)) or any(
        ast.unparse(parameter.annotation) == "int" for parameter in annotated if parameter.annotation is not None
    )


KINDS = (
    Kind(
        slugs=("eager-operator",),
        applied="rule",
        does="a loop or other lines whose turns and sizes are in the data (`for i in range(torch.nonzero(x).shape[0])`): a custom "
        "operator, "
        "which is defined behind the imports, runs them as they are written. They stay uncompiled, and wait for the GPU as before, but the "
        "graph goes on around them; CUDA graphs leave the operator out. It is called only while Dynamo traces and no input requires grad, "
        "else the lines run as before",
        asks="all that they give is what they write into tensors that the function has just made; no other effect, no random number, "
        "nothing "
        "that `torch.autocast` or a default device would change; torch 2.9",
    ),
)
