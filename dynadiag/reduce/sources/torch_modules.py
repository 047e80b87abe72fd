"""The class `Repro` of a script that torch made, as FX prints graphs: its sub graphs inside it, the tensors that it makes. No torch here.

torch writes one class a graph module and makes what it holds in `__init__` (`NNModuleToString.convert`, torch/_dynamo/debug_utils.py, 2.11
to 2.15): sub graphs, buffers, small ones with their values, and parameters.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dynadiag.fx.source_text import DTYPE_NAMES
from dynadiag.reduce.sources.repro_layers import Layer, read_layer

_SHORT = {name: short for short, name in DTYPE_NAMES.items()}
_READS = re.compile(r"^(\s*\w+)( = self\.(\w+)\s*(?:;.*)?)$")
_DEEPEST = 20


@dataclass(frozen=True, kw_only=True)
class ReadClass:
    """`text` is the class without `__init__`; `attributes` the tensors that `__init__` makes; `used` the arguments that something reads;
    `unread` why it cannot be rebuilt.
    """

    text: str
    attributes: tuple[Mapping[str, Any], ...] = ()
    used: frozenset[str] = frozenset()
    unread: str | None = None


@dataclass(kw_only=True)
class _Made:
    attributes: list[Mapping[str, Any]] = field(default_factory=list)
    children: dict[str, str] = field(default_factory=dict)
    layers: dict[str, Layer] = field(default_factory=dict)
    unread: str | None = None


def arguments_of(found: ast.ClassDef) -> list[str] | None:
    """The names of the arguments of `forward`; None when it has none."""
    forward = _method(found, "forward")
    return None if forward is None or not forward.body else [argument.arg for argument in forward.args.args[1:]]


def read_class(lines: Sequence[str], found: ast.ClassDef, classes: Mapping[str, ast.ClassDef], annotations: Mapping[str, str]) -> ReadClass:
    """The class in the `lines` of a script; `classes` are those that it may use, `annotations` what FX prints beside each argument."""
    return _read(lines, found, classes, annotations, name=found.name, depth=0)


def _read(
    lines: Sequence[str], found: ast.ClassDef, classes: Mapping[str, ast.ClassDef], annotations: Mapping[str, str], *, name: str, depth: int
) -> ReadClass:
    forward = _method(found, "forward")
    if forward is None or not forward.body:
        return ReadClass(text="", unread=f"the class {found.name[:80]} has no forward")
    made = _made(_method(found, "__init__"), classes)
    if depth > _DEEPEST:
        return ReadClass(text="", unread="its subgraphs contain one another")
    if depth and made.attributes:
        return ReadClass(text="", unread=f"the subgraph {found.name[:80]} contains the tensor {made.attributes[0]['name']!r}")
    notes = {str(mapping["name"]): note(mapping) for mapping in made.attributes}
    names = [argument.arg for argument in forward.args.args[1:]]
    arguments = ", ".join(["self", *(f'{word}: "{annotations[word]}"' if word in annotations else word for word in names)])
    body = _without_layers(lines[forward.body[0].lineno - 1 : forward.end_lineno], made, notes)
    body = [_noted(line, notes) for line in body]
    children = [_read(lines, classes[cls], classes, {}, name=attribute, depth=depth + 1) for attribute, cls in made.children.items()]
    inside = [f"    {line}" for child in children for line in child.text.splitlines()]
    text = "\n".join([f"class {name}(torch.nn.Module):", f"    def forward({arguments}):", *body, *inside]) + "\n"
    loads = (node.id for node in ast.walk(forward) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load))
    unread = made.unread or next((child.unread for child in children if child.unread is not None), None)
    return ReadClass(text=text, attributes=tuple(made.attributes), used=frozenset(names) & frozenset(loads), unread=unread)


def _method(found: ast.ClassDef, name: str) -> ast.FunctionDef | None:
    return next((node for node in found.body if isinstance(node, ast.FunctionDef) and node.name == name), None)


def _without_layers(body: Sequence[str], made: _Made, notes: Mapping[str, str]) -> list[str]:
    """The body with operators in place of layers; what stands in the way is said in `made`."""
    lines: list[str] = []
    read: set[str] = set()
    for line in body:
        name = next((found for found in re.findall(r"self\.(\w+)\b", line) if found in made.layers), None)
        new = [line] if name is None else made.layers[name].lines(line, first=name not in read, notes=notes)
        if new is None:
            made.unread = made.unread or f"it calls a layer in an unexpected way: {line.strip()[:80]!r}"
            continue
        read |= {name} if name is not None else set()
        lines += new
    held = [str(attribute["name"]) for attribute in made.attributes]
    if len({*held}) < len(held) or any(
        f"{tensor['name']}_read" in line for layer in made.layers.values() for tensor in layer.tensors.values() for line in body
    ):
        made.unread = made.unread or "its layers and its tensors have the same names"
    return lines


def _layer(name: str, value: ast.expr) -> Layer | None:
    value, moved_to = _moved(value)
    return read_layer(name, value, moved_to or "cpu")


def _noted(line: str, notes: Mapping[str, str]) -> str:
    """`x = self.w` with what FX prints beside `x`."""
    read = _READS.match(line)
    return line if read is None or read[3] not in notes else f'{read[1]}: "{notes[read[3]]}"{read[2]}'


def note(tensor: Mapping[str, Any]) -> str:
    """What FX prints beside a tensor, such as `f32[2, 3][3, 1]cpu`."""
    return f"{_SHORT.get(tensor['dtype'], 'f32')}{tensor['shape']}{contiguous(tensor['shape'])}{tensor['device']}"


def contiguous(shape: Sequence[int]) -> list[int]:
    """The strides of a contiguous tensor."""
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.insert(0, step)
        step *= max(size, 1)
    return strides


def _made(init: ast.FunctionDef | None, classes: Mapping[str, ast.ClassDef]) -> _Made:
    made = _Made()
    for statement in init.body if init is not None else ():
        if isinstance(statement, ast.Pass) or ast.unparse(statement) == "super().__init__()":
            continue
        named = _named(statement)
        child = None if named is None else _class_of(named[1], classes)
        tensor = None if named is None or child is not None else _tensor(*named)
        layer = None if named is None or child is not None else _layer(*named)
        if named is not None and child is not None:
            made.children[named[0]] = child
        elif tensor is not None:
            made.attributes.append(tensor)
        elif layer is not None:
            made.layers[layer.name] = layer
            made.attributes.extend(layer.tensors.values())
        else:
            made.unread = made.unread or f"its __init__ creates {ast.unparse(statement)[:80]!r}"
    return made


def _named(statement: ast.stmt) -> tuple[str, ast.expr] | None:
    """`self.NAME = VALUE` or `self.register_buffer('NAME', VALUE)`."""
    value = statement.value if isinstance(statement, ast.Assign | ast.Expr) else None
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1 and value is not None:
        target = statement.targets[0]
        is_own = isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self"
        return (target.attr, value) if is_own and isinstance(target, ast.Attribute) else None
    if isinstance(value, ast.Call) and ast.unparse(value.func) == "self.register_buffer" and len(value.args) == 2:
        name = value.args[0].value if isinstance(value.args[0], ast.Constant) else None
        return (name, value.args[1]) if isinstance(name, str) and name.isidentifier() else None
    return None


def _class_of(value: ast.expr, classes: Mapping[str, ast.ClassDef]) -> str | None:
    is_made = isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and not value.args and not value.keywords
    return (
        value.func.id if is_made and isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id in classes else None
    )


def _tensor(name: str, value: ast.expr) -> Mapping[str, Any] | None:
    """A tensor with its values, or None for `values` where they are random (integers: zeros)."""
    value, moved_to = _moved(value)
    if not isinstance(value, ast.Call):
        return None
    maker = ast.unparse(value.func)
    if maker == "torch.nn.Parameter" and len(value.args) == 1 and not value.keywords:
        inner = _tensor(name, value.args[0])
        return None if inner is None else {**inner, "requires_grad": True}
    named = {keyword.arg: keyword.value for keyword in value.keywords if keyword.arg is not None}
    known = _values(maker, value.args, named)
    dtype = ast.unparse(named["dtype"]).removeprefix("torch.") if "dtype" in named else None
    if known is None or (dtype is not None and dtype not in _SHORT):
        return None
    shape, values = known
    device = moved_to or _device(named.get("device")) or "cpu"
    dtype = dtype or ("float32" if values is None else _natural_dtype(values))
    return {"name": name, "shape": shape, "dtype": dtype, "device": device, "values": values, "requires_grad": False}


def _moved(value: ast.expr) -> tuple[ast.expr, str | None]:
    """Without `.to("cuda:0")` or `.cuda()`, and where it goes."""
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in ("to", "cuda"):
        return value.func.value, _device(value.args[0]) if value.args else "cuda:0"
    return value, None


def _device(node: ast.expr | None) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _values(maker: str, args: Sequence[ast.expr], named: Mapping[str, ast.expr]) -> tuple[list[int], Any] | None:
    """The shape and the values of `tensor(...)`, `torch.randn([...])` and `torch.randint(1, size=[...])`."""
    size = args[0] if maker == "torch.randn" and len(args) == 1 else named.get("size")
    if maker in ("torch.randn", "torch.randint") and size is not None:
        shape = _literal_of(size)
        return (shape, None) if isinstance(shape, list) and all(type(item) is int and item >= 0 for item in shape) else None
    if maker not in ("tensor", "torch.tensor") or len(args) != 1:
        return None
    values = _literal_of(args[0])
    shape = _shape(values)
    return None if shape is None or 0 in shape else (shape, values)


def _literal_of(node: ast.expr) -> Any:
    """Numbers and lists of them; `inf` and `nan` as torch prints them. None for anything else."""
    if isinstance(node, ast.List):
        return [_literal_of(element) for element in node.elts]
    if isinstance(node, ast.Name) and node.id in ("inf", "nan"):
        return float(node.id)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        number = _literal_of(node.operand)
        return -number if isinstance(number, int | float) else None
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float) else None


def _shape(values: Any) -> list[int] | None:
    """None where lists of one depth differ in length, or something is no number."""
    if not isinstance(values, list):
        return None if values is None else []
    inner = [_shape(item) for item in values]
    if not inner:
        return [0]
    first = inner[0]
    return None if first is None or any(group != first for group in inner) else [len(values), *first]


def _natural_dtype(values: Any) -> str:
    while isinstance(values, list):
        values = values[0]
    return {bool: "bool", int: "int64"}.get(type(values), "float32")
