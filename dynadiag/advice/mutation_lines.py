"""Rewrites of a line that mutates: out of place, under no_grad, without `.data`."""

from __future__ import annotations

import ast

from dynadiag.source.line import SourceLine, dotted
from dynadiag.source.writes import is_function_form, written_tensor


def out_of_place(line: SourceLine) -> str | None:
    """`x = x.mul(2)` for `x.mul_(2)`, `x = torch.relu(x)` for `torch.relu_(x)`, `x = x + 1` for `x += 1`.

    None for what cannot be rewritten so on one line, and where the tensor written is not the name in front.
    """
    call = line.only_call()
    if call is not None and any(keyword.arg == "out" for keyword in call.keywords):
        return _without_out(line, call)
    if call is not None and isinstance(call.func, ast.Attribute):
        return _method(line, call)
    statement = line.statement
    if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name | ast.Attribute):
        target = _name_of_a_tensor(statement.target)
        whole = f"{target} {_OPERATORS[type(statement.op)]}= {line.text(statement.value)}" if type(statement.op) in _OPERATORS else None
        return (
            f"{target} = {target} {_OPERATORS[type(statement.op)]} {_bracketed(line, statement.value)}"
            if target is not None and whole == line.code
            else None
        )
    return None


def _without_out(line: SourceLine, call: ast.Call) -> str | None:
    """`y = torch.add(x, 1)` for `torch.add(x, 1, out=y)`."""
    out = next(keyword for keyword in call.keywords if keyword.arg == "out")
    target = _name_of_a_tensor(out.value)
    parts = [line.text(argument) for argument in (*call.args, *(keyword for keyword in call.keywords if keyword is not out))]
    return f"{target} = {line.text(call.func)}({', '.join(parts)})" if target is not None else None


_OPERATORS: dict[type[ast.operator], str] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.MatMult: "@", ast.Pow: "**"}


def _bracketed(line: SourceLine, value: ast.expr) -> str:
    text = line.text(value)
    return text if isinstance(value, ast.Name | ast.Constant | ast.Call | ast.Attribute | ast.Subscript) else f"({text})"


def _method(line: SourceLine, call: ast.Call) -> str | None:
    """Every method of a chain loses its underscore: `x.mul_(2).add_(1)` is `x = x.mul(2).add(1)`."""
    text: str = line.code
    node: ast.AST | None = call
    changed = False
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        name = node.func.attr
        if name in _NO_FUNCTIONAL_FORM or name.startswith("_") or (is_function_form(node) and not _has_pure_twin(node)):
            return None
        if not name.endswith("_") or name.endswith("__"):
            return None  # `x.t().mul_(2)` writes what `t()` returns: `x = x.t().mul(2)` would be another tensor
        if f".{name}(" not in text:
            return None  # `relu_(x)` of `from torch import relu_`: the name of its twin may not be there
        text = text.replace(f".{name}(", f".{name[:-1]}(", 1)
        changed, node = True, written_tensor(node)
    target = None if node is None else _name_of_a_tensor(node)
    return f"{target} = {text}" if changed and target is not None else None


def _name_of_a_tensor(node: ast.AST) -> str | None:
    """The dotted name, unless its last part makes another tensor each time it is read: it cannot be assigned."""
    name = dotted(node)
    return None if name is None or ("." in name and name.rpartition(".")[2] in _VIEWS) else name


_VIEWS = frozenset(("data", "grad", "T", "mT", "H", "mH", "real", "imag"))


def _has_pure_twin(call: ast.Call) -> bool:
    """Whether the function without its underscore computes the same: not so for `torch.nn.init`, and operators name their overload last."""
    owner = dotted(call.func.value) or "" if isinstance(call.func, ast.Attribute) else ""
    return "init" not in owner.split(".") and ".ops" not in f".{owner}"


# Methods of torch.Tensor without a twin that gives a new tensor (torch 2.15), and some whose twin does something else.
_NO_FUNCTIONAL_FORM = frozenset(
    (
        "apply_", "bernoulli_", "cauchy_", "copy_", "detach_", "exponential_", "fill_", "fill_diagonal_", "geometric_", "log_normal_",
        "map_",
        "map2_", "normal_", "random_", "requires_grad_", "resize_", "resize_as_", "set_", "share_memory_", "sparse_resize_", "uniform_",
        "zero_", "embedding_renorm_", "rename_", "swap_tensors",
    )
)  # fmt: skip


def under_no_grad(line: SourceLine) -> str | None:
    """The line without `.data` and `.detach()` on what it writes, under `with torch.no_grad():`; None when nothing of it is written so."""
    text = line.code
    if line.tree is None or "\n" in text or line.statement is None:
        return None
    shorter = text.replace(".data", "") if ".data" in text and ".data =" not in text else text
    return f"with torch.no_grad():\n    {shorter}" if shorter and (shorter != text or line.only_call() is not None) else None
