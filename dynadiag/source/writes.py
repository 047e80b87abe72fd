"""Which tensor an in-place call or statement writes."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dynadiag.source.line import SourceLine, dotted
from dynadiag.source.torch_names import has_in_place_name, is_of_torch
from dynadiag.source.tree import called_name

# Names that stand for a module of functions in front of a call, not for a tensor, beside torch's own: `init.zeros_`, `Tensor.add_`.
_MODULES = frozenset(("functional", "init", "Tensor", "aten", "ops", "linalg", "special", "fft", "TF", "func"))


def written_tensor(call: ast.Call) -> ast.expr | None:
    """The tensor that an in-place call writes: `x` of `x.add_(1)`, `torch.relu_(x)`, `torch.Tensor.add_(x, 1)`, `f(y, out=x)`."""
    out = next((keyword.value for keyword in call.keywords if keyword.arg == "out"), None)
    if out is not None:
        return out
    if not isinstance(call.func, ast.Attribute):
        named = isinstance(call.func, ast.Name) and has_in_place_name(call.func.id)
        return _function_argument(call) if named else None
    return _function_argument(call) if is_function_form(call) else call.func.value


def is_function_form(call: ast.Call) -> bool:
    """Whether the call is a function of a module, whose argument is what it writes, and not a method of a tensor."""
    owner = dotted(call.func.value) if isinstance(call.func, ast.Attribute) else None
    return owner is not None and (is_of_torch(dotted(call.func)) or owner.rpartition(".")[2] in _MODULES)


def _function_argument(call: ast.Call) -> ast.expr | None:
    if call.args:
        return None if isinstance(call.args[0], ast.Starred) else call.args[0]
    return next((keyword.value for keyword in call.keywords if keyword.arg in ("input", "self", "tensor")), None)


def writes_hidden(line: SourceLine) -> bool:
    """Whether the line writes a tensor behind autograd's back: `p.data.mul_(2)`, `p.detach()[0] = 1`, `torch.relu_(p.data)`."""
    return any(_is_hidden(node) for node in _written(line))


def _written(line: SourceLine) -> Iterator[ast.AST]:
    for node in line.nodes:
        if isinstance(node, ast.Call):
            name = called_name(node)
            written = written_tensor(node) if has_in_place_name(name) else None
            if written is not None:
                yield written
            yield from (keyword.value for keyword in node.keywords if keyword.arg == "out")
        elif isinstance(node, ast.AugAssign):
            yield node.target
        elif isinstance(node, ast.Assign):
            yield from (target for target in node.targets if isinstance(target, ast.Subscript | ast.Attribute))


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
