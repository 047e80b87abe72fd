"""A train step that was compiled whole: the model is compiled in its place, with what `torch.compile` was given."""

from __future__ import annotations

import ast

from dynadiag.changes.edits import Edit, alone
from dynadiag.changes.region_edits import ProofNames
from dynadiag.errors import EditError
from dynadiag.source.imports import parse_canonical, spelled
from dynadiag.source.line import dotted
from dynadiag.source.tree import calls_in, nodes_of

SLUG = "compile-model-apart"
_NAMES = ("state_dict", "named_parameters", "named_buffers", "named_modules", "isinstance", "type(", "torch.save", "__class__")


def compiled_apart(file: str, text: str, function: str, model: str, names: ProofNames, *, in_place: bool) -> tuple[Edit, ...]:
    """The edits that compile `model` where it is made, in place or as another object, and leave `function` as it is.

    Both are at the module's top level: one `model = ...`, and `@torch.compile` above the function or one `step = torch.compile(function)`.
    In proofs the plain step is still observed as the compiled one was, and the model's own calls are not.
    Raises EditError for anything else.
    """
    tree, _ = parse_canonical(text)
    made = [node for node in nodes_of(ast.Name, tree) if node.id == model and isinstance(node.ctx, ast.Store)]
    binds = [
        statement
        for statement in tree.body
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == model and len(statement.targets) == 1
    ]
    if len(made) != 1 or len(binds) != 1:
        raise EditError(f"`{model}` is not assigned once, at the top level of the file")
    step, options = _step(file, text, tree, function, names.watch)
    if not in_place and (named := next((name for name in _NAMES if name in text), None)) is not None:
        raise EditError(f"what `torch.compile` gives is another object with other names in its `state_dict()`, and `{named}` is used")
    rows = alone(text, binds[0])
    new, seen = (_compiled(model, group, in_place=in_place) for group in (options, [*options, f"{names.apart}=True"]))
    return Edit(file=file, old=rows, new=(*rows, new), near=binds[0].lineno, observed=(*rows, seen)), step


def _compiled(model: str, options: list[str], *, in_place: bool) -> str:
    return f"{model}.compile({', '.join(options)})" if in_place else f"{model} = torch.compile({', '.join([model, *options])})"


def _step(file: str, text: str, tree: ast.Module, function: str, watch: str) -> tuple[Edit, list[str]]:
    """The edit that takes `torch.compile` from the function, and what it was given."""
    found = next((statement for statement in tree.body if isinstance(statement, ast.FunctionDef) and statement.name == function), None)
    if found is None:
        raise EditError(f"`{function}` is no function at the top level of the file")
    for decorator in found.decorator_list:
        call = decorator if isinstance(decorator, ast.Call) else None
        if dotted(call.func if call is not None else decorator) == "torch.compile":
            if call is not None and call.args:
                raise EditError("the decorator is given more than options")
            old = (f"@{spelled(decorator)}",)
            return Edit(file=file, old=old, new=(), near=decorator.lineno, observed=(f"@{watch}",)), _options(call)
    calls = [node for node in calls_in(tree) if dotted(node.func) == "torch.compile" and node.args]
    calls = [item for item in calls if ast.unparse(item.args[0]) == function]
    holders = [child for child in tree.body if isinstance(child, ast.Assign) and child.value in calls]
    if len(calls) != 1 or len(holders) != 1 or len(calls[0].args) != 1:
        raise EditError(f"`{function}` is not compiled in one place, at the top level of the file")
    left = ", ".join(ast.unparse(target) for target in holders[0].targets)
    edit = Edit(
        file=file,
        old=alone(text, holders[0]),
        new=(f"{left} = {function}",),
        near=holders[0].lineno,
        observed=(f"{left} = {watch}({function})",),
    )
    return edit, _options(calls[0])


def _options(call: ast.Call | None) -> list[str]:
    options = [] if call is None else call.keywords
    names = {option.arg for option in options}
    if None in names or not all(_is_constant(keyword.value) for keyword in options):
        raise EditError("`torch.compile` is given options that are not written there")
    return [f"{item.arg}={ast.unparse(item.value)}" for item in options]


def _is_constant(node: ast.expr) -> bool:
    try:
        ast.literal_eval(node)
    except ValueError:
        return False
    return True
