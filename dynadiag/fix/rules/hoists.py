"""What is made anew each time and need not be: a statement out of its loop, a value out of the compiled function.

Only texts are compared. Whether the one object does what the many did is for the proof to say.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import libcst as cst

from dynadiag.fix.edits import Edit, EditError, alone, with_value

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
    for loop in ast.walk(ast.parse(text)):
        if not isinstance(loop, ast.For | ast.While):
            continue
        for at, one in enumerate(loop.body):
            target = _target(one)
            if target is None or not _is_made(one, compiles=names is None) or (names is not None and target not in names):
                continue
            if _why_not_moved(loop, at, target) is None:
                yield _moved(file, text, loop, one), target


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
    written = {one.id for one in ast.walk(loop) if isinstance(one, ast.Name) and isinstance(one.ctx, _WRITES)}
    written -= {one.id for one in ast.walk(statement) if isinstance(one, ast.Name) and isinstance(one.ctx, _WRITES)}
    others = [one for one in loop.body if one is not statement]
    again = any(isinstance(one.ctx, _WRITES) and one.id == target for other in others for one in _names(other))
    if again or (isinstance(loop, ast.For) and any(one.id == target for one in _names(loop.target))):
        return f"`{target}` is assigned more than once"
    read = _read(statement)
    if read & written:
        return f"it reads `{min(read & written)}`, which the loop assigns"
    before = [*loop.body[:at], *([loop.test] if isinstance(loop, ast.While) else [loop.iter])]
    if any(one.id == target for other in before for one in _names(other)):
        return f"`{target}` is read before"
    if any(isinstance(one, ast.Await | ast.Yield | ast.YieldFrom | ast.NamedExpr) for one in ast.walk(statement)):
        return "it is more than an assignment"
    return None


def _names(node: ast.AST) -> list[ast.Name]:
    return [one for one in ast.walk(node) if isinstance(one, ast.Name)]


def _read(node: ast.AST) -> set[str]:
    """The names that are read; the parameters of a lambda are its own, their defaults are not."""
    if isinstance(node, ast.Lambda):
        defaults = [*node.args.defaults, *(one for one in node.args.kw_defaults if one is not None)]
        return (_read(node.body) - _parameters(node.args)).union(*map(_read, defaults))
    if isinstance(node, ast.Name):
        return {node.id} if isinstance(node.ctx, ast.Load) else set()
    return set().union(*map(_read, ast.iter_child_nodes(node)))


def _parameters(node: ast.AST) -> set[str]:
    return {one.arg for one in ast.walk(node) if isinstance(one, ast.arg)}


def _moved(file: str, text: str, loop: ast.For | ast.While, statement: ast.stmt) -> tuple[Edit, Edit]:
    """The edit that puts the statement before the loop, and the one that takes it out."""
    taken = alone(text, statement)
    return Edit(file=file, old=(), new=taken, near=loop.lineno), Edit(file=file, old=taken, new=(), near=statement.lineno)


def makes_constant(row: str) -> bool:
    """Whether a line makes a value of torch's constructors alone, of which only an optimizer may read the program's objects."""
    try:
        body = ast.parse(row).body
    except SyntaxError:
        return False
    made = body[0] if len(body) == 1 and isinstance(body[0], ast.Assign) and _target(body[0]) is not None else None
    if not isinstance(made, ast.Assign) or not isinstance(made.value, ast.Call):
        return False
    parts = list(ast.walk(made.value))
    calls = [one for one in parts if isinstance(one, ast.Call)]
    of_torch = all(isinstance(one.func, ast.Attribute) and (_is_torchs(one.func) or one.func.attr in _OF_TENSORS) for one in calls)
    models = [one.func.value for one in calls if isinstance(one.func, ast.Attribute) and one.func.attr == "parameters"]
    names = [one for one in parts if isinstance(one, ast.Name) and one.id != "torch" and one not in models]
    return of_torch and not names and not any(isinstance(one, ast.Subscript | ast.Lambda | ast.Starred) for one in parts)


def _is_torchs(node: ast.expr) -> bool:
    return ast.unparse(node).startswith("torch.")


def _is_only_read(function: ast.FunctionDef, target: str) -> bool:
    """Whether nothing in the function can write to the value or give it away: it is an operand, or given to torch."""
    around = {child: node for node in ast.walk(function) for child in ast.iter_child_nodes(node)}
    for one in _names(function):
        if one.id != target or isinstance(one.ctx, ast.Store):
            continue
        node = around[one]
        if isinstance(node, ast.keyword):
            node = around[node]
        reads = isinstance(node, ast.BinOp | ast.Compare | ast.UnaryOp)
        given = isinstance(node, ast.Call) and one is not node.func and _is_torchs(node.func) and not ast.unparse(node.func).endswith("_")
        asked = isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and not node.attr.endswith("_")
        if not (reads or given or asked or (isinstance(node, ast.Call) and one is node.func)):
            return False
    return True


def out_of_function(file: str, text: str, row: int) -> tuple[tuple[Edit, Edit], str]:
    """The value that the line at a row makes in each call, made once before the function, as edits and the name that it gets there.

    It is the right side of `name = ...` in a function of the module's top level, and reads only what the module has before the function.
    Raises EditError for any other.
    """
    tree = ast.parse(text)
    function = next((one for one in tree.body if isinstance(one, ast.FunctionDef) and one.lineno <= row <= (one.end_lineno or 0)), None)
    made = next((one for one in ast.walk(function) if isinstance(one, ast.Assign) and one.lineno == row), None) if function else None
    target = None if made is None else _target(made)
    if function is None or made is None or target is None or not isinstance(made.value, ast.Call):
        raise EditError("the line makes no value for a name, in a function of the module")
    why = _why_not_constant(tree, function, made, target)
    if why is not None:
        raise EditError(why)
    name = f"{function.name}_{target}"
    if any(one.id == name for one in _names(tree)):
        raise EditError(f"`{name}` is there already")
    first = min([function.lineno, *(one.lineno for one in function.decorator_list)])
    old = alone(text, made)
    new, (value, *more) = with_value(old, lambda value: cst.Name(name))
    before = Edit(file=file, old=(), new=(f"{name} = {value}", *more, "", ""), near=first)
    return (before, Edit(file=file, old=old, new=new, near=row)), name


def _why_not_constant(tree: ast.Module, function: ast.FunctionDef, made: ast.Assign, target: str) -> str | None:
    others = [one for one in _names(function) if isinstance(one.ctx, _WRITES) and one.id == target]
    if len(others) != 1 or target in _parameters(function):
        return f"`{target}` is assigned more than once"
    if not ast.unparse(made.value).endswith(".item()") and not _is_only_read(function, target):
        return f"`{target}` may be written to, or leaves the function"
    inside = {one.id for one in _names(function) if isinstance(one.ctx, _WRITES)} | _parameters(function)
    read = {one.id for one in _names(made.value) if isinstance(one.ctx, ast.Load)}
    if read & inside:
        return f"the value is another one in each call: it reads `{min(read & inside)}`"
    there = {one.id for statement in tree.body if statement.lineno < function.lineno for one in _bound(statement)}
    imports = (one for one in tree.body if isinstance(one, ast.Import | ast.ImportFrom))
    there |= {(name.asname or name.name).partition(".")[0] for one in imports for name in one.names}
    missing = read - there
    return f"`{min(missing)}` is not there before the function" if missing else None


def _bound(statement: ast.stmt) -> list[ast.Name]:
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return [ast.Name(statement.name)]
    return [one for one in _names(statement) if isinstance(one.ctx, ast.Store)]
