"""Arguments of a call in a printed graph: constants, nodes and containers of them, made from the syntax tree. Nothing is evaluated."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import Any

import torch

from dynadiag.dotted_names import lies_in
from dynadiag.errors import NotRebuildableError, shorten
from dynadiag.fx import allowed

_ACCELERATOR = re.compile(r"^(cuda|xpu|mps|hpu|mtia|npu|privateuseone)(:\d+)?$")


class Values:
    """Makes argument values from expressions, with `names` bound to nodes; `device` replaces every accelerator when given."""

    def __init__(self, names: Mapping[str, Any], *, device: str | None, extra_namespaces: frozenset[str]) -> None:
        self._names = names
        self._device = device
        self._extra = extra_namespaces

    def make(self, node: ast.expr) -> Any:
        """The value of one argument. Raises NotRebuildableError for anything but constants, names of nodes, and containers of them."""
        if isinstance(node, ast.Constant):
            return self._constant(node.value)
        if isinstance(node, ast.Name):
            return self._name(node.id)
        if isinstance(node, (ast.Tuple, ast.List)):
            items = [self.make(item) for item in node.elts]
            return tuple(items) if isinstance(node, ast.Tuple) else items
        if isinstance(node, ast.Dict):
            return {self._key(key): self.make(value) for key, value in zip(node.keys, node.values, strict=True)}
        if isinstance(node, (ast.UnaryOp, ast.BinOp)):
            return self._number(node)
        if isinstance(node, ast.Slice):
            return slice(*(None if part is None else self.make(part) for part in (node.lower, node.upper, node.step)))
        if isinstance(node, ast.Call):
            return self._call(node)
        if isinstance(node, ast.Attribute):
            return self.dotted(dotted_name(node))
        raise refused(node)

    def _constant(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.on_device(value)
        if value is None or value is Ellipsis or isinstance(value, (int, float, complex)):
            return value
        raise NotRebuildableError(f"it contains a constant of type {type(value).__name__}")

    def on_device(self, text: str) -> str:
        """The text, or the replacing device when it names an accelerator."""
        return self._device if self._device is not None and _ACCELERATOR.match(text) else text

    def _key(self, node: ast.expr | None) -> Any:
        if isinstance(node, ast.Constant) and isinstance(node.value, (str, int)):
            return node.value
        raise NotRebuildableError("it contains a dict whose keys are not constants")

    def _name(self, name: str) -> Any:
        if name in self._names:
            return self._names[name]
        table = allowed.constants()
        for candidate in (name, f"builtins.{name}"):
            if candidate in table:
                return table[candidate]
        raise NotRebuildableError(f"it uses `{shorten(name, 80)}`, which the text does not define")

    def _number(self, node: ast.UnaryOp | ast.BinOp) -> complex | float | int:
        """A printed number with a sign or an imaginary part: "-1", "(1+2j)"."""
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            value = self._number_of(node.operand)
            return -value
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)):
            left, right = self._number_of(node.left), self._number_of(node.right)
            if isinstance(right, complex):
                return left + right if isinstance(node.op, ast.Add) else left - right
        raise refused(node)

    def _number_of(self, node: ast.expr) -> complex | float | int:
        value = self.make(node)
        if isinstance(value, (int, float, complex)) and not isinstance(value, bool):
            return value
        raise refused(node)

    def dotted(self, name: str) -> Any:
        """The constant or operator with a dotted name ("torch.float32", "torch.ops.aten.add_.Tensor")."""
        if name in allowed.constants():
            return allowed.constants()[name]
        if lies_in(name, "torch.ops"):
            return allowed.operator(name, extra_namespaces=self._extra)
        raise NotRebuildableError(f"it passes `{shorten(name, 80)}`, which is not in the allow-list of values")

    def _call(self, node: ast.Call) -> Any:
        """The few calls that FX prints inside arguments: device(...), slice(...), torch.Size(...), complex(...), a constant tensor."""
        name = dotted_name(node.func)
        if name == "torch.Tensor":
            raise NotRebuildableError("it contains a constant tensor, whose values FX does not print")
        arguments = [self.make(argument) for argument in node.args]
        named = {keyword.arg: self.make(keyword.value) for keyword in node.keywords if keyword.arg is not None}
        if len(named) != len(node.keywords):
            raise refused(node)
        if name in ("device", "torch.device"):
            return self._make_device(arguments, named)
        if name == "slice" and not named and 1 <= len(arguments) <= 3:
            return slice(*arguments)
        if name in ("torch.Size", "torch.torch.Size") and not named and len(arguments) == 1 and isinstance(arguments[0], (list, tuple)):
            return tuple(arguments[0])
        if name == "complex" and not named and len(arguments) == 2 and all(isinstance(part, (int, float)) for part in arguments):
            return complex(*arguments)
        if lies_in(name, "torch.return_types") and not named and len(arguments) == 1:
            return arguments[0]
        raise refused(node)

    def _make_device(self, arguments: list[Any], named: dict[str, Any]) -> torch.device:
        parts = [*arguments, *named.values()]
        if not parts or len(parts) > 2 or not isinstance(parts[0], str) or not set(named) <= {"type", "index"}:
            raise NotRebuildableError("it contains a device that cannot be parsed")
        # The name is replaced already; the replacing device has no number.
        kind = parts[0]
        try:
            return torch.device(kind) if kind == self._device or len(parts) == 1 else torch.device(kind, int(parts[1]))
        except (RuntimeError, TypeError, ValueError):
            raise NotRebuildableError(f"it uses the device {shorten(repr(parts), 60)}, which this torch does not know") from None


def dotted_name(node: ast.expr) -> str:
    """The dotted name that an expression spells ("torch.ops.aten.add.Tensor"). Raises NotRebuildableError when it spells none."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        raise refused(node)
    return ".".join([node.id, *reversed(parts)])


def refused(node: ast.AST) -> NotRebuildableError:
    """The error for an expression that FX never prints at this place."""
    try:
        text = ast.unparse(node)
    except (ValueError, RecursionError):
        text = type(node).__name__
    return NotRebuildableError(f"it contains `{shorten(text, 80)}` ({type(node).__name__}), which cannot be rebuilt")
