"""A loop over the rows of a tensor that was made of a list of numbers: the numbers stay beside the tensor, and the loop runs over them.

`sizes = torch.as_tensor(pairs, dtype=torch.long)` and, there or in another function of the module, `for height, width in sizes:`. Sizes
that are read of a tensor are not known while Dynamo traces; the numbers that it was made of are. A tensor from elsewhere has no numbers
beside it, and the loop is as before. Seen on 2.15: Dynamo follows an attribute of a tensor that the graph makes.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dynadiag.changes.edits import Edit, alone
from dynadiag.changes.kinds import Kind
from dynadiag.changes.syntax import rows_of
from dynadiag.errors import EditError
from dynadiag.source.imports import parse_canonical, spelled
from dynadiag.source.line import dotted
from dynadiag.source.torch_names import (
    FACTORIES,
    HOST_READS,
    NEW_MEMORY,
    PROPERTIES,
    SHARED_MEMORY,
    TAKES_SIZES,
    has_in_place_name,
    torch_function,
)
from dynadiag.source.tree import called_method, called_name, children_of, names_in, nodes_in, nodes_of, parents_in

BESIDE = "dynadiag_numbers"
_INTEGERS = ("torch.long", "torch.int64", "torch.int", "torch.int32")
_TAKES_NUMBERS = TAKES_SIZES | {"range", "int", "float"}
"""Calls that do the same with a number as with a tensor of one."""
_COPIES = (NEW_MEMORY | PROPERTIES | HOST_READS) - SHARED_MEMORY
"""What shares no memory with a tensor that it is called on."""


def with_numbers(file: str, text: str, row: int) -> tuple[Edit, ...]:
    """The loop around a row over the numbers of its tensor, and the lines that put them there.

    Raises EditError where it is no such loop, where the tensor may be written, or where something is done with a row of it that is
    another thing with numbers: a division (Python raises an error for zero), a method, a call of a function that is not known.
    """
    tree, _ = parse_canonical(text)
    function, loop, name, names = _loop(tree, row)
    made = [node for node in nodes_of(ast.Assign, tree) if _made_of(node, name) is not None]
    if not made:
        raise EditError(f"no line is known that makes `{name}` of a list of integers")
    written = next(_written(tree, name), None)
    if written is not None:
        raise EditError(f"`{spelled(written)}` may write `{name}`")
    _check_uses(function, names)
    nested = isinstance(_element(loop), ast.Tuple)
    line = rows_of(text)[loop.lineno - 1].strip()
    over = ast.unparse(loop.iter)
    if line.count(over) != 1:
        raise EditError("the loop is not written on a line of its own")
    new = line.replace(over, over.replace(name, f'getattr({name}, "{BESIDE}", {name})'))
    edits = [_kept(file, text, child, name, nested=nested) for child in made]
    return (*edits, Edit(file=file, old=(line,), new=(new,), near=loop.lineno))


def _loop(tree: ast.Module, row: int) -> tuple[ast.FunctionDef, ast.For, str, set[str]]:
    """The innermost loop around a row over the rows of a name: its function, itself, that name, and the names of one row."""
    around = [
        node for node in nodes_in(tree) if isinstance(node, ast.FunctionDef | ast.For) and node.lineno <= row <= (node.end_lineno or 0)
    ]
    functions = [function for function in around if isinstance(function, ast.FunctionDef)]
    for loop in sorted((item for item in around if isinstance(item, ast.For)), key=lambda child: -child.lineno):
        over, element = loop.iter, _element(loop)
        if isinstance(over, ast.Call) and ast.unparse(over.func) == "enumerate" and len(over.args) == 1:
            over = over.args[0]
        parts = element.elts if isinstance(element, ast.Tuple) else [element]
        if functions and isinstance(over, ast.Name) and all(isinstance(part, ast.Name) for part in parts):
            return (
                max(functions, key=lambda entry: entry.lineno),
                loop,
                over.id,
                {expression.id for expression in parts if isinstance(expression, ast.Name)},
            )
    raise EditError("the line is in no loop over the rows of a tensor")


def _element(loop: ast.For) -> ast.expr | None:
    """What one row is assigned to."""
    if not isinstance(loop.iter, ast.Call):
        return loop.target
    pair = loop.target.elts if isinstance(loop.target, ast.Tuple) else []
    return pair[1] if len(pair) == 2 else None


def _made_of(statement: ast.Assign, name: str) -> str | None:
    """The name of the list that the statement makes the tensor of, with an integer type."""
    call, target = statement.value, statement.targets[0]
    if not isinstance(call, ast.Call) or len(statement.targets) != 1 or not isinstance(target, ast.Name) or target.id != name:
        return None
    types = [ast.unparse(keyword.value) for keyword in call.keywords if keyword.arg == "dtype"]
    known = dotted(call.func) in ("torch.as_tensor", "torch.tensor") and len(call.args) == 1 and types and types[0] in _INTEGERS
    return call.args[0].id if known and isinstance(call.args[0], ast.Name) else None


def _kept(file: str, text: str, made: ast.Assign, name: str, *, nested: bool) -> Edit:
    source = _made_of(made, name)
    old = alone(text, made)
    numbers = f"[[int(n) for n in one] for one in {source}]" if nested else f"[int(n) for n in {source}]"
    new = (*old, f"if isinstance({source}, (list, tuple)):", f"    {name}.{BESIDE} = {numbers}")
    return Edit(file=file, old=old, new=new, near=made.lineno)


def _written(tree: ast.Module, name: str) -> Iterator[ast.AST]:
    """What may write a tensor of this name, or one that shares its memory: by an index, an operator, a method or `out=`."""
    for function in nodes_of(ast.FunctionDef, tree):
        shared, count = {name}, 0
        while len(shared) > count:
            count = len(shared)
            for node in nodes_in(function):
                if isinstance(node, ast.Assign) and _shares(node.value, shared):
                    shared |= {each for target in node.targets for each in _names(target)}
                elif isinstance(node, ast.For) and any(_shares(each, shared) for each in (node.iter, *getattr(node.iter, "args", ()))):
                    shared |= _names(node.target)
        for child in nodes_in(function):
            owners: list[ast.expr] = []
            if isinstance(child, ast.AugAssign):
                owners = [child.target]
            elif isinstance(child, ast.Assign):
                owners = [each for each in child.targets if isinstance(each, ast.Subscript)]
            elif isinstance(child, ast.Call):
                method = called_method(child)
                owners = [child.func] if has_in_place_name(method) else []
                owners += [each.value for each in child.keywords if each.arg == "out"]
            if any(_shares(each, shared) for each in owners):
                yield child


def _shares(node: ast.AST, names: set[str]) -> bool:
    """Whether the value may share memory with a tensor of one of the names: it is one, a part of it or a view."""
    if isinstance(node, ast.Name):
        return node.id in names
    if isinstance(node, ast.Call):
        called = node.func
        if not isinstance(called, ast.Attribute) or called.attr in _COPIES:
            return False
        owner = node.args[:1] if torch_function(dotted(called)) is not None else [called.value]
        return any(_shares(expression, names) for expression in owner)
    if isinstance(node, ast.Subscript | ast.Attribute | ast.Starred):
        return _shares(node.value, names)
    return isinstance(node, ast.IfExp | ast.Tuple | ast.List) and any(_shares(child, names) for child in children_of(node))


def _names(node: ast.AST) -> set[str]:
    return names_in(node)


def _check_uses(function: ast.FunctionDef, names: set[str]) -> None:
    """Raise EditError where a number would do something else than a tensor of one."""
    parents = parents_in(function)
    count = 0
    while len(names) > count:
        count = len(names)
        for node in nodes_in(function):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in names:
                target = _ends_in(node, parents)
                names = names | {target.id} if isinstance(target, ast.Name) else names


def _ends_in(name: ast.Name, parents: dict[ast.AST, ast.AST]) -> ast.expr | None:
    """The name that is given what a number comes to, if it is one; None where it ends in a size, a bound or a computation with tensors."""
    node: ast.AST = name
    while True:
        above = parents[node]
        what = f"`{spelled(above)[:80]}`"
        if isinstance(above, ast.BinOp) and isinstance(above.op, ast.Add | ast.Sub | ast.Mult):
            if _is_tensor(above.left) or _is_tensor(above.right):
                return None
        elif isinstance(above, ast.BinOp) and isinstance(above.op, ast.Div | ast.FloorDiv | ast.Mod) and node is above.left:
            if not isinstance(above.right, ast.Constant) or not above.right.value:
                raise EditError(f"{what} raises an error for a number, and not for a tensor")
        elif isinstance(above, ast.Call) and node is not above.func:
            last = called_name(above)
            operand = above.args[:1] == [node] and torch_function(dotted(above.func)) is not None and last not in FACTORIES
            if last not in _TAKES_NUMBERS or operand:
                raise EditError(f"{what} may do something else with numbers")
            return None
        elif isinstance(above, ast.Slice | ast.If | ast.While) or (isinstance(above, ast.Compare) and _is_asked(above, parents)):
            return None
        elif isinstance(above, ast.Assign | ast.AugAssign):
            target = above.targets[0] if isinstance(above, ast.Assign) else above.target
            simple = isinstance(target, ast.Name) and (isinstance(above, ast.AugAssign) or len(above.targets) == 1)
            if not simple or (isinstance(above, ast.AugAssign) and not isinstance(above.op, ast.Add | ast.Sub | ast.Mult)):
                raise EditError(f"{what} keeps a number where a tensor was")
            return target
        elif not isinstance(above, ast.UnaryOp | ast.Tuple | ast.List | ast.Starred | ast.keyword) or isinstance(
            getattr(above, "op", None), ast.Not | ast.Invert
        ):
            raise EditError(f"{what} may do something else with numbers")
        node = above


def _is_asked(test: ast.AST, parents: dict[ast.AST, ast.AST]) -> bool:
    """Whether Python asks whether this holds, and nobody keeps it."""
    above = parents[test]
    return isinstance(above, ast.If | ast.While) or (isinstance(above, ast.BoolOp | ast.UnaryOp) and _is_asked(above, parents))


def _is_tensor(node: ast.expr) -> bool:
    """Whether it can only be a tensor: an index with slices or None in it."""
    index = node.slice if isinstance(node, ast.Subscript) else None
    return isinstance(index, ast.Tuple) and any(isinstance(element, ast.Slice) or ast.unparse(element) == "None" for element in index.elts)


KINDS = (
    Kind(
        slugs=("numbers-of-tensor",),
        applied="rule",
        does="a loop over the rows of a tensor that was made of a list of integers (`torch.as_tensor(pairs, dtype=torch.long)`, in the "
        "same "
        "module): the numbers stay beside the tensor as an attribute, and the loop runs over them. Without the attribute the loop is as "
        "before",
        asks="the tensor and what shares its memory are written nowhere in the module; with a row nothing is done that is another thing "
        "with a "
        "number: no division by it, no method, no call of a function that is not known",
    ),
)
