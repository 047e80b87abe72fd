"""What is made anew each time and need not be: a statement out of its loop, a value out of the compiled function.

Only texts are compared. Whether the one object does what the many did is for the proof to say.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import libcst as cst

from dynadiag.changes.edits import Edit, alone, with_value
from dynadiag.changes.kinds import Kind
from dynadiag.errors import EditError
from dynadiag.source.imports import Imports, parse_canonical
from dynadiag.source.torch_names import has_in_place_name
from dynadiag.source.tree import children_of, holds, nodes_in, nodes_of, parameters_of, parents_in

HOIST = "hoist-out-of-loop"
CONSTANT = "hoist-constant"
_HOOK = re.compile(r"register_\w*hook$")
_WRITES = (ast.Store, ast.Del)
_OF_TENSORS = frozenset(("item", "tolist", "parameters"))


def out_of_loops(file: str, text: str, names: frozenset[str] | None) -> Iterator[tuple[tuple[Edit, Edit], str]]:
    """Each statement in a loop that makes an object anew, as the edits that put it before the loop, and its target.

    `names`: only what is bound to one of these; None: only a `torch.compile`. A statement is moved where it reads and writes nothing that
    the loop assigns, and where nothing before it in the loop reads its target.
    """
    tree, _ = parse_canonical(text)
    for loop in nodes_in(tree):
        if not isinstance(loop, ast.For | ast.While):
            continue
        for at, statement in enumerate(loop.body):
            target = _target(statement)
            if target is None or not _is_made(statement, compiles=names is None) or (names is not None and target not in names):
                continue
            if _why_not_moved(loop, at, target) is None:
                yield _moved(file, text, loop, statement), target


def _target(statement: ast.stmt) -> str | None:
    """The name that a statement binds; of a hook that nothing is bound to, what it is put on."""
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1 and isinstance(statement.targets[0], ast.Name):
        return statement.targets[0].id
    return None


def _is_made(statement: ast.stmt, *, compiles: bool) -> bool:
    """Whether the value is a new object: what `torch.compile` gives, or a lambda, a partial, an instance, a hook's handle."""
    value = statement.value if isinstance(statement, ast.Assign) else None
    if isinstance(value, ast.Lambda):
        return not compiles
    if not isinstance(value, ast.Call):
        return False
    called = ast.unparse(value.func)
    if compiles:
        return called == "torch.compile"
    last = called.rpartition(".")[2]
    return last[:1].isupper() or last == "partial" or _HOOK.search(last) is not None


def _why_not_moved(loop: ast.For | ast.While, at: int, target: str) -> str | None:
    statement = loop.body[at]
    written = {node.id for node in nodes_of(ast.Name, loop) if isinstance(node.ctx, _WRITES)}
    written -= {child.id for child in nodes_of(ast.Name, statement) if isinstance(child.ctx, _WRITES)}
    others = [item for item in loop.body if item is not statement]
    again = any(isinstance(name.ctx, _WRITES) and name.id == target for other in others for name in _names(other))
    if again or (isinstance(loop, ast.For) and any(name_node.id == target for name_node in _names(loop.target))):
        return f"`{target}` is assigned more than once"
    read = _read(statement)
    if read & written:
        return f"it reads `{min(read & written)}`, which the loop assigns"
    before = [*loop.body[:at], *([loop.test] if isinstance(loop, ast.While) else [loop.iter])]
    if any(element.id == target for other in before for element in _names(other)):
        return f"`{target}` is read before"
    if holds(statement, ast.Await, ast.Yield, ast.YieldFrom, ast.NamedExpr):
        return "it is more than an assignment"
    return None


def _names(node: ast.AST) -> list[ast.Name]:
    return list(nodes_of(ast.Name, node))


def _read(node: ast.AST) -> set[str]:
    """The names that are read; the parameters of a lambda are its own, their defaults are not."""
    if isinstance(node, ast.Lambda):
        defaults = [*node.args.defaults, *(kw_default for kw_default in node.args.kw_defaults if kw_default is not None)]
        return (_read(node.body) - _parameters(node.args)).union(*map(_read, defaults))
    if isinstance(node, ast.Name):
        return {node.id} if isinstance(node.ctx, ast.Load) else set()
    return set().union(*map(_read, children_of(node)))


def _parameters(node: ast.AST) -> set[str]:
    return parameters_of(node)


def _moved(file: str, text: str, loop: ast.For | ast.While, statement: ast.stmt) -> tuple[Edit, Edit]:
    """The edit that puts the statement before the loop, and the one that takes it out."""
    taken = alone(text, statement)
    return Edit(file=file, old=(), new=taken, near=loop.lineno), Edit(file=file, old=taken, new=(), near=statement.lineno)


def makes_constant(row: str, imports: Imports) -> bool:
    """Whether a line makes a value of torch's constructors alone, of which only an optimizer may read the program's objects."""
    try:
        body = parse_canonical(row, imports)[0].body
    except SyntaxError:
        return False
    made = body[0] if len(body) == 1 and isinstance(body[0], ast.Assign) and _target(body[0]) is not None else None
    if not isinstance(made, ast.Assign) or not isinstance(made.value, ast.Call):
        return False
    parts = list(nodes_in(made.value))
    calls = [part for part in parts if isinstance(part, ast.Call)]
    of_torch = all(isinstance(call.func, ast.Attribute) and (_is_torchs(call.func) or call.func.attr in _OF_TENSORS) for call in calls)
    models = [item.func.value for item in calls if isinstance(item.func, ast.Attribute) and item.func.attr == "parameters"]
    names = [node for node in parts if isinstance(node, ast.Name) and node.id != "torch" and node not in models]
    return of_torch and not names and not any(isinstance(child, ast.Subscript | ast.Lambda | ast.Starred) for child in parts)


def _is_torchs(node: ast.expr) -> bool:
    """Whether this is in torch, or a method of what a function of torch's gives."""
    inner = node
    while isinstance(inner, ast.Attribute | ast.Call):
        inner = inner.func if isinstance(inner, ast.Call) else inner.value
    return inner is not node and isinstance(inner, ast.Name) and inner.id == "torch"


def _is_only_read(function: ast.FunctionDef, target: str) -> bool:
    """Whether nothing in the function can write to the value or give it away: it is an operand, or given to torch."""
    around = parents_in(function)
    for name in _names(function):
        if name.id != target or isinstance(name.ctx, ast.Store):
            continue
        node = around[name]
        if isinstance(node, ast.keyword):
            node = around[node]
        reads = isinstance(node, ast.BinOp | ast.Compare | ast.UnaryOp)
        given = (
            isinstance(node, ast.Call) and name is not node.func and _is_torchs(node.func) and not has_in_place_name(ast.unparse(node.func))
        )
        asked = isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and not has_in_place_name(node.attr)
        if not (reads or given or asked or (isinstance(node, ast.Call) and name is node.func)):
            return False
    return True


def out_of_function(file: str, text: str, row: int) -> tuple[tuple[Edit, Edit], str]:
    """The value that the line at a row makes in each call, made once before the function, as edits and the name that it gets there.

    It is the right side of `name = ...` in a function of the module's top level, and reads only what the module has before the function.
    Raises EditError for any other.
    """
    tree, imports = parse_canonical(text)
    function = next(
        (
            statement
            for statement in tree.body
            if isinstance(statement, ast.FunctionDef) and statement.lineno <= row <= (statement.end_lineno or 0)
        ),
        None,
    )
    made = next((node for node in nodes_of(ast.Assign, function) if node.lineno == row), None) if function else None
    target = None if made is None else _target(made)
    if function is None or made is None or target is None or not isinstance(made.value, ast.Call):
        raise EditError("the line makes no value for a name, in a function of the module")
    why = _why_not_constant(tree, function, made, target, imports)
    if why is not None:
        raise EditError(why)
    name = f"{function.name}_{target}"
    if any(name_node.id == name for name_node in _names(tree)):
        raise EditError(f"`{name}` is there already")
    first = min([function.lineno, *(decorator.lineno for decorator in function.decorator_list)])
    old = alone(text, made)
    new, (value, *more) = with_value(old, lambda value: cst.Name(name))
    before = Edit(file=file, old=(), new=(f"{name} = {value}", *more, "", ""), near=first)
    return (before, Edit(file=file, old=old, new=new, near=row)), name


def _why_not_constant(tree: ast.Module, function: ast.FunctionDef, made: ast.Assign, target: str, imports: Imports) -> str | None:
    others = [name_node for name_node in _names(function) if isinstance(name_node.ctx, _WRITES) and name_node.id == target]
    if len(others) != 1 or target in _parameters(function):
        return f"`{target}` is assigned more than once"
    if not ast.unparse(made.value).endswith(".item()") and not _is_only_read(function, target):
        return f"`{target}` may be written to, or leaves the function"
    inside = {item.id for item in _names(function) if isinstance(item.ctx, _WRITES)} | _parameters(function)
    read = {element.id for element in _names(made.value) if isinstance(element.ctx, ast.Load)}
    if read & inside:
        return f"the value is another one in each call: it reads `{min(read & inside)}`"
    there = {entry.id for statement in tree.body if statement.lineno < function.lineno for entry in _bound(statement)}
    statements = (child for child in tree.body if isinstance(child, ast.Import | ast.ImportFrom))
    bound, stands_for = {name.asname or name.name for node in statements for name in node.names}, dict(imports.names)
    there |= {stands_for.get(name, name).partition(".")[0] for name in bound}
    missing = read - there
    return f"`{min(missing)}` is not there before the function" if missing else None


def _bound(statement: ast.stmt) -> list[ast.Name]:
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return [ast.Name(statement.name)]
    return [name for name in _names(statement) if isinstance(name.ctx, ast.Store)]


KINDS = (
    Kind(
        slugs=(HOIST,),
        applied="rule",
        does="what a loop makes anew in each round (a `torch.compile`, a lambda, a `partial`, an object, a hook) is made before the loop",
        asks="it reads nothing that the loop assigns; the same must come of it",
    ),
    Kind(
        slugs=(CONSTANT,),
        applied="rule",
        does="a value that the compiled function makes of constants in each call is made before the function",
        asks="nothing in the function writes to it or gives it away",
    ),
)
