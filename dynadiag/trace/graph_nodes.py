"""The nodes of a graph from its text, through `ast` and never by running it (`torch.fx.graph.CodeGen`, torch 2.11 and 2.15)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace

from dynadiag.model.graph import Node
from dynadiag.model.location import Location
from dynadiag.trace.graph_text import signature

_NEXT_CLASS = re.compile(r"^ {0,4}class ", re.MULTILINE)
_FILE = re.compile(
    r"^#\s*(?:Annotation: \{[^{}\n]*+\} )?(?:Backward of forward node:\s*)?File: (.+?):(\d{1,9})(?: in (.+?))?(?:, code: (.*))?$"
)
# A parameter, or else what stands up to the next comma or line: whatever was looked at and is none is not looked at again.
_PARAMETER = re.compile(
    r"""[\s*]*+(?:([A-Za-z_]\w*+)\s*+(?::\s*+(?:"([^"\n]*+)"|'([^'\n]*+)'|[^,="'#\n]++))?+\s*+(?:=[^,\n]*+)?+\s*+(?:,|$)(?:\s*+#[^\n]*+)?+"""
    r"""|[^,\n]++)"""
)
_TYPED = re.compile(r"""^([A-Za-z_]\w*) ?: ?"([^"]*)"\s*(?:#.*)?$""")
_NAMES = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Pow: "pow", ast.Div: "truediv", ast.FloorDiv: "floordiv", ast.Mod: "mod",
          ast.MatMult: "matmul", ast.LShift: "lshift", ast.RShift: "rshift", ast.BitAnd: "and_", ast.BitOr: "or_", ast.BitXor: "xor",
          ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge", ast.Eq: "eq", ast.NotEq: "ne",
          ast.USub: "neg", ast.UAdd: "pos", ast.Invert: "invert", ast.Not: "not_"}  # fmt: skip
_LONGEST_LINE = 200_000


def graph_nodes(text: str) -> tuple[Node, ...]:
    """The nodes of the first graph in a text, in order: placeholders, attributes, calls and the output; () when there is no `forward`.

    Bodies of higher order ops (classes inside the class) are left out. A line that cannot be parsed is left out too.
    """
    found = signature(text)
    if found is None:
        return ()
    begin, end, body = found
    inner = _NEXT_CLASS.search(text, body)
    return tuple(_Reader(_placeholders(text[begin:end])).read(text[body : inner.start() if inner else len(text)].split("\n")))


def _placeholders(parameters: str) -> list[Node]:
    found = []
    for match in _PARAMETER.finditer(parameters):
        name, double, single = match.groups()
        if name is not None and name != "self":
            found.append(Node(name=name, op="placeholder", target=name, annotation=double or single))
    return found


class _Reader:
    """Goes through the lines of a body and remembers the last comment that names a user line."""

    def __init__(self, inputs: list[Node]) -> None:
        self.inputs = inputs
        self.typed: dict[str, str] = {}
        self.known = {node.name for node in inputs}
        self.location: Location | None = None

    def read(self, lines: list[str]) -> Iterator[Node]:
        """All nodes; a joint graph names its placeholders in the body."""
        nodes: list[Node] = []
        for position, line in enumerate(lines):
            content = line.strip()
            if content.startswith("#"):
                self._comment(content)
            elif not line.startswith("        ") or line[8:9].isspace() or not content:
                continue
            elif content.startswith("return"):
                nodes.append(self._output(lines[position:]))
                break
            elif "fx_pytree.tree_flatten_spec(" in content:
                self._unflattened(content)
            elif typed := _TYPED.match(content):
                self.typed[typed.group(1)] = typed.group(2)
            else:
                nodes.extend(self._statement(content))
        yield from self.inputs
        yield from nodes

    def _comment(self, content: str) -> None:
        match = _FILE.match(content)
        if match:
            file, line, function, code = match.groups()
            self.location = Location(file, int(line), function, code or None)
        elif "No stacktrace found" in content:
            self.location = None

    def _unflattened(self, content: str) -> None:
        names = [name.strip() for name in content.split("=")[0].split(";")[-1].split(",")]
        self.inputs = [
            Node(name=name, op="placeholder", target=name, annotation=self.typed.get(name)) for name in names if name.isidentifier()
        ]
        self.known.update(node.name for node in self.inputs)

    def _statement(self, content: str) -> Iterator[Node]:
        parsed = _parse(content)
        if parsed is None:
            return
        inplace: str | None = None
        for statement in parsed:
            if isinstance(statement, ast.AugAssign):
                inplace = f"operator.i{_NAMES.get(type(statement.op), 'op').rstrip('_')}"
                arguments: tuple[ast.expr, ...] = (statement.target, statement.value)
            elif isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Subscript):
                inplace = "operator.setitem"
                arguments = (statement.targets[0].value, statement.targets[0].slice, statement.value)
            else:
                name, annotation, value = _assigned(statement)
                if name is None or value is None:
                    return
                if inplace:
                    yield self._node(name, "call_function", inplace, arguments, annotation)
                elif isinstance(value, ast.Name):
                    self._renamed(name, value.id)
                else:
                    op, target, arguments = self._called(value)
                    yield self._node(name, op, target, arguments, annotation)
                return

    def _renamed(self, name: str, argument: str) -> None:
        """`l_x_ = L_x_`: the node of an argument has a name of its own, by which the rest of the text and torch's own records call it."""
        self.known.add(name)
        for position, node in enumerate(self.inputs):
            if node.name == node.target == argument:
                self.inputs[position] = replace(node, name=name)

    def _node(self, name: str, op: str, target: str, arguments: tuple[ast.expr, ...], annotation: str | None) -> Node:
        self.known.add(name)
        return Node(name=name, op=op, target=target, args=tuple(map(_written, arguments)), annotation=annotation, location=self.location)

    def _called(self, value: ast.expr) -> tuple[str, str, tuple[ast.expr, ...]]:
        """Op, target and arguments of a right-hand side, as FX names them."""
        if isinstance(value, ast.Call):
            return self._call(value)
        if isinstance(value, ast.BinOp):
            return "call_function", f"operator.{_NAMES.get(type(value.op), 'op')}", (value.left, value.right)
        if isinstance(value, ast.UnaryOp):
            return "call_function", f"operator.{_NAMES.get(type(value.op), 'op')}", (value.operand,)
        if isinstance(value, ast.Compare):
            return "call_function", f"operator.{_NAMES.get(type(value.ops[0]), 'op')}", (value.left, *value.comparators)
        if isinstance(value, (ast.Subscript, ast.Attribute)) and _written(value).startswith("self."):
            return "get_attr", _written(value).removeprefix("self."), ()
        if isinstance(value, ast.Subscript):
            return "call_function", "operator.getitem", (value.value, value.slice)
        if isinstance(value, ast.Attribute):
            return "call_function", "getattr", (value.value, ast.Constant(value.attr))
        return "call_function", _written(value), ()

    def _call(self, value: ast.Call) -> tuple[str, str, tuple[ast.expr, ...]]:
        arguments = (*value.args, *(keyword.value for keyword in value.keywords))
        target = _written(value.func)
        head = target.split(".")[0].split("[")[0]
        if head == "self":
            return "call_module", target.removeprefix("self."), arguments
        if isinstance(value.func, ast.Attribute) and (head in self.known or not isinstance(_root(value.func), ast.Name)):
            return "call_method", value.func.attr, (value.func.value, *arguments)
        return "call_function", target, arguments

    def _output(self, lines: list[str]) -> Node:
        """The output: the return statement may go over several lines."""
        text = [lines[0]]
        for line in lines[1:]:
            if not line.strip() or (not line.startswith("         ") and line.strip()[:1] not in ")]}"):
                break
            text.append(line)
        parsed = _parse("\n".join(part.strip() for part in text))
        value = parsed[0].value if parsed and isinstance(parsed[0], ast.Return) else None
        if isinstance(value, ast.Call) and value.args:
            value = value.args[0]
        items = value.elts if isinstance(value, (ast.Tuple, ast.List)) else [value] if value is not None else []
        return Node(name="output", op="output", target="output", args=tuple(map(_written, items)))


def _root(value: ast.expr) -> ast.expr:
    while isinstance(value, ast.Attribute):
        value = value.value
    return value


def _assigned(statement: ast.stmt) -> tuple[str | None, str | None, ast.expr | None]:
    """Name, annotation and value of an assignment to a name."""
    if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
        annotation = statement.annotation
        text = annotation.value if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str) else _written(annotation)
        return statement.target.id, text, statement.value
    if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
        return statement.targets[0].id, None, statement.value
    return None, None, None


def _parse(content: str) -> list[ast.stmt] | None:
    if len(content) > _LONGEST_LINE:
        return None
    try:
        return ast.parse(content).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _written(value: ast.expr) -> str:
    """Source of an expression, as the graph shows it."""
    try:
        return ast.unparse(value)
    except (RecursionError, ValueError):
        return "..."
