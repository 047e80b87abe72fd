"""Rewrites of a line that mutates: out of place, under no_grad, without `.data`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dynadiag.source.line import SourceLine, dotted, parse_line

# Names that stand for a module of functions in front of a call, not for a tensor: `torch`, `F`, `nn.init`, `torch.Tensor`.
_MODULES = frozenset(("torch", "F", "nn", "functional", "init", "Tensor", "aten", "ops", "linalg", "special", "fft", "TF", "func"))


def written_tensor(call: ast.Call) -> ast.expr | None:
    """The tensor that an in-place call writes: `x` of `x.add_(1)`, `torch.relu_(x)`, `torch.Tensor.add_(x, 1)`, `f(y, out=x)`."""
    out = next((keyword.value for keyword in call.keywords if keyword.arg == "out"), None)
    if out is not None:
        return out
    if not isinstance(call.func, ast.Attribute):
        named = isinstance(call.func, ast.Name) and call.func.id.endswith("_")
        return _function_argument(call) if named else None
    return _function_argument(call) if is_function_form(call) else call.func.value


def is_function_form(call: ast.Call) -> bool:
    """Whether the call is a function of a module, whose argument is what it writes, and not a method of a tensor."""
    owner = dotted(call.func.value) if isinstance(call.func, ast.Attribute) else None
    return owner is not None and (owner.rpartition(".")[2] in _MODULES or owner.startswith(("torch.", "nn.", "F.")))


def _function_argument(call: ast.Call) -> ast.expr | None:
    if call.args:
        return None if isinstance(call.args[0], ast.Starred) else call.args[0]
    return next((keyword.value for keyword in call.keywords if keyword.arg in ("input", "self", "tensor")), None)


def writes_hidden(code: str | None) -> bool:
    """Whether the line writes a tensor behind autograd's back: `p.data.mul_(2)`, `p.detach()[0] = 1`, `torch.relu_(p.data)`."""
    return any(_is_hidden(node) for node in _written(parse_line(code)))


def _written(line: SourceLine) -> Iterator[ast.AST]:
    for node in line.nodes:
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else dotted(node.func) or ""
            inplace = name.endswith("_")
            yield from (one for one in (written_tensor(node) if inplace else None,) if one is not None)
            yield from (keyword.value for keyword in node.keywords if keyword.arg == "out")
        elif isinstance(node, ast.AugAssign):
            yield node.target
        elif isinstance(node, ast.Assign):
            yield from (one for one in node.targets if isinstance(one, ast.Subscript | ast.Attribute))


def _is_hidden(node: ast.AST | None) -> bool:
    """Whether `.data` or `.detach()` is among the views that lead to the tensor; an attribute of an object that is called so is none."""
    while node is not None:
        if isinstance(node, ast.Attribute):
            return node.attr == "data"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr == "detach":
                return True
            node = written_tensor(node)
        else:
            node = node.value if isinstance(node, ast.Subscript) else None
    return False


def out_of_place(code: str | None) -> str | None:
    """`x = x.mul(2)` for `x.mul_(2)`, `x = torch.relu(x)` for `torch.relu_(x)`, `x = x + 1` for `x += 1`.

    None for what cannot be rewritten so on one line, and where the tensor written is not the name in front.
    """
    line = parse_line(code)
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
    parts = [line.text(one) for one in (*call.args, *(keyword for keyword in call.keywords if keyword is not out))]
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


def under_no_grad(code: str | None) -> str | None:
    """The line without `.data` and `.detach()` on what it writes, under `with torch.no_grad():`; None when nothing of it is written so."""
    line = parse_line(code)
    text = line.code
    if line.tree is None or "\n" in text or line.statement is None:
        return None
    shorter = text.replace(".data", "") if ".data" in text and ".data =" not in text else text
    return f"with torch.no_grad():\n    {shorter}" if shorter and (shorter != text or line.only_call() is not None) else None
