"""What is compiled is a function or a module of the script, called once with values like those that it had; what led to the call goes."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence

from dynadiag.reduce.scripts.passes.editing import names_in
from dynadiag.reduce.scripts.passes.unused import without_unused
from dynadiag.reduce.scripts.program import FactsOf, Program, calls_compiler, definition_text, of_tree


def direct_calls(facts_of: FactsOf) -> Callable[[Program], Iterator[Program]]:
    """The pass for what a run without the compiler shows: one program for each function that ran, the last definition first."""

    def called_directly(program: Program) -> Iterator[Program]:
        if not any(map(calls_compiler, ast.walk(program.tree))):
            return
        values = facts_of(program).values
        for call in _calls(program.tree, values):
            for with_settings in (False, True):
                tree = program.tree
                tree.body = _needed(_outermost(tree), call, with_settings=with_settings)
                yield without_unused(of_tree(tree))

    return called_directly


def _calls(tree: ast.Module, values: Mapping[str, str]) -> list[str]:
    """Calls of what is compiled, as text."""
    found = []
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            found.append(_call(tree, node, node.name, values))
        elif isinstance(node, ast.ClassDef):
            made = _construction(tree, node.name)
            for method in [
                statement for statement in node.body if isinstance(statement, ast.FunctionDef) and not statement.name.startswith("__")
            ]:
                found.append(_call(tree, method, made if method.name == "forward" else f"{made}.{method.name}", values))
    return [name for name in reversed(found) if name is not None]


def _call(tree: ast.Module, function: ast.FunctionDef, target: str, values: Mapping[str, str]) -> str | None:
    arguments = [argument.arg for argument in function.args.args]
    known = "" if arguments == ["self"] else values.get(definition_text(function.name, arguments))
    if known is None:
        return None
    if any(calls_compiler(node) for decorator in function.decorator_list for node in ast.walk(decorator)):
        return f"{target}({known})"
    return f"{_compiler(tree, target)}({known})"


def _compiler(tree: ast.Module, target: str) -> str:
    """The first call of the compiler, or decorator that is one, for another target."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and calls_compiler(node.func)]
    if not calls:
        return f"torch.compile({target})"
    named = [
        f"{keyword.arg}={ast.unparse(keyword.value)}" for keyword in calls[0].keywords if keyword.arg is not None and keyword.arg != "model"
    ]
    return f"torch.compile({', '.join([target, *named])})"


def _construction(tree: ast.Module, name: str) -> str:
    """How the script makes one, where that needs nothing of an object."""
    made = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name]
    return next((ast.unparse(call) for call in made if "self" not in {part.id for part in names_in(call)}), f"{name}()")


def _outermost(tree: ast.Module) -> list[ast.stmt]:
    """The statements of the module, those under `if __name__ == "__main__"` too."""
    return [
        statement
        for node in tree.body
        for statement in (node.body if isinstance(node, ast.If) and "__name__" in {part.id for part in names_in(node.test)} else [node])
    ]


def _needed(statements: Sequence[ast.stmt], call: str, *, with_settings: bool) -> list[ast.stmt]:
    """The call with what it needs; `with_settings` also what the module sets in what it imports."""
    last = ast.Expr(ast.parse(call, mode="eval").body)
    imported = {name for node in statements if isinstance(node, ast.Import | ast.ImportFrom) for name in _binds(node)}
    kept = [node for node in statements if with_settings and _root(node) in imported]
    names = {name_node.id for node in (last, *kept) for name_node in names_in(node, ast.Load)}
    while fresh := [node for node in statements if node not in kept and _binds(node) & names]:
        kept += fresh
        names |= {item.id for node in fresh for item in names_in(node, ast.Load)}
    return [node for node in statements if node in kept] + [last]


def _root(node: ast.stmt) -> str | None:
    """`torch` of `torch.manual_seed(0)` and of `torch._dynamo.config.verbose = True`."""
    target: ast.expr | None = None
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        target = node.value.func
    elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute):
        target = node.targets[0]
    while isinstance(target, ast.Attribute):
        target = target.value
    return target.id if isinstance(target, ast.Name) else None


def _binds(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {(name.asname or name.name).partition(".")[0] for name in node.names}
    return {name_node.id for name_node in names_in(node, ast.Store)}
