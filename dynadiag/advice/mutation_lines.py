"""Rewrites of a line that mutates: out of place, under no_grad, without `.data`."""

from __future__ import annotations

import ast

from dynadiag.advice.source import SourceLine, dotted, parse_line


def out_of_place(code: str | None) -> str | None:
    """`x = x.mul(2)` for `x.mul_(2)` and `x += 1` to `x = x + 1`; None for what cannot be rewritten so on one line."""
    line = parse_line(code)
    call = line.only_call()
    if call is not None and isinstance(call.func, ast.Attribute):
        return _method(line, call)
    statement = line.statement
    if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name | ast.Attribute):
        target = line.text(statement.target)
        whole = f"{target} {_OPERATORS[type(statement.op)]}= {line.text(statement.value)}" if type(statement.op) in _OPERATORS else None
        return f"{target} = {target} {_OPERATORS[type(statement.op)]} {_bracketed(line, statement.value)}" if whole == line.code else None
    return None


_OPERATORS: dict[type[ast.operator], str] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.MatMult: "@", ast.Pow: "**"}


def _bracketed(line: SourceLine, value: ast.expr) -> str:
    text = line.text(value)
    return text if isinstance(value, ast.Name | ast.Constant | ast.Call | ast.Attribute | ast.Subscript) else f"({text})"


def _method(line: SourceLine, call: ast.Call) -> str | None:
    """Every method of a chain loses its underscore: `x.mul_(2).add_(1)` is `x = x.mul(2).add(1)`."""
    text, node = line.code, call
    changed = False
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        name = node.func.attr
        if name in _NO_FUNCTIONAL_FORM:
            return None
        if name.endswith("_") and not name.endswith("__"):
            text, changed = text.replace(f".{name}(", f".{name[:-1]}(", 1), True
        inner = node.func.value
        node = inner  # type: ignore[assignment]
    target = dotted(node)
    return f"{target} = {text}" if changed and target is not None and not target.endswith(".data") else None


_NO_FUNCTIONAL_FORM = frozenset(
    ("zero_", "fill_", "copy_", "normal_", "uniform_", "set_", "resize_", "requires_grad_", "detach_", "random_")
)


def under_no_grad(code: str | None) -> str | None:
    """The line without `.data` and `.detach()` on what it writes, under `with torch.no_grad():`; None when nothing of it is written so."""
    line = parse_line(code)
    text = line.code
    if line.tree is None or "\n" in text or line.statement is None:
        return None
    shorter = text.replace(".data", "") if ".data" in text and ".data =" not in text else text
    return f"with torch.no_grad():\n    {shorter}" if shorter and (shorter != text or line.only_call() is not None) else None


def receiver(code: str | None) -> str | None:
    """The tensor that a line's outermost in-place method is called on, as written: `self.cache` for `self.cache.add_(x)`."""
    call = parse_line(code).only_call()
    node: ast.AST | None = call
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        node = node.func.value
    return dotted(node) if node is not None else None
