"""The text of a graph (`torch.fx.graph.CodeGen`, torch 2.11 and 2.15): counted while it streams by, and read node by node, never run."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, AnyStr

from dynadiag.model.graph import Node
from dynadiag.model.location import Location
from dynadiag.trace.values import NAME

_FORWARD = re.compile(rb"(?:\A|\n) {4}def forward\(")
_SIGNATURE_LINE_END = re.compile(rb":[ \t]*\n")
# The lines of a body in one pass: what is called, or the operator, or any other line whole; a line that only renames an input
# (`l_x_ = L_x_`) leaves all three empty. Counting names in C takes a third of the time of looking at each line.
_BODY_LINE = re.compile(
    rb"\n {8}(?=[A-Za-z_])(?:"
    rb'\w+(?:: "[^"\n]*")? = (?:([A-Za-z_][\w.]*)\(|(?!self\.)[\w.\-]+ (\+|-|\*\*|\*|//|/|%|@|<<|>>|<=|>=|==|!=|<|>|&|\||\^) )|'
    rb"\w+ = [A-Za-z_]\w*(?=\n)|([^\n]*))"
)
_SIGNATURE_OF_BYTES: tuple[Any, ...] = (_FORWARD, _SIGNATURE_LINE_END, b"\n", b") -> ", b")")
_SIGNATURE_OF_STR: tuple[Any, ...] = (
    re.compile(_FORWARD.pattern.decode()),
    re.compile(_SIGNATURE_LINE_END.pattern.decode()),
    "\n",
    ") -> ",
    ")",
)
_NEXT_CLASS_BYTES = re.compile(rb"\n {0,4}class ")
_STRING = re.compile(rb"\"[^\"\n]*\"|'[^'\n]*'")
_COMMENT = re.compile(rb"#[^\n]*")
_NODE = re.compile(rb'(\w+)(?: ?: ?(?:"[^"]*"|[^=]*?))? = (.*)')
_IDENTIFIER = re.compile(rb"[A-Za-z_]\w*\s*(?:;|#|$)")
_CALL = re.compile(rb"([A-Za-z_][\w.]*)\(")
_BINARY = re.compile(rb"(?:[\w.\-]+|\([^()]*\)) (\+|-|\*\*|\*|//|/|%|@|<<|>>|<=|>=|==|!=|<|>|&|\||\^) ")
_GETITEM = re.compile(rb"[A-Za-z_]\w*(?:\[[^\]]*\])")
_ATTRIBUTE = re.compile(rb"[A-Za-z_]\w*\.[\w.]+\s*(?:;|#|$)")
_INPLACE = re.compile(rb"\w+ (\+|-|\*\*|\*|//|/|%|@|<<|>>|&|\||\^)= ")
OPERATORS = {
    "+": "add", "-": "sub", "*": "mul", "**": "pow", "/": "truediv", "//": "floordiv", "%": "mod", "@": "matmul", "<<": "lshift",
    ">>": "rshift", "<": "lt", "<=": "le", ">": "gt", ">=": "ge", "==": "eq", "!=": "ne", "&": "and_", "|": "or_", "^": "xor",
}  # fmt: skip
_UNFLATTEN = b"fx_pytree.tree_flatten_spec("


@dataclass(frozen=True, slots=True)
class GraphCount:
    """Nodes of a graph (`len(gm.graph.nodes)`) and how often each function, method or module is called in it."""

    nodes: int
    ops: dict[str, int]


def count_graph(text: bytes) -> GraphCount | None:
    """The counts of the first graph in a text; None when it holds no `forward`.

    Counted are placeholders, attributes, calls and the output. Lines that only rename an input (`l_x_ = L_x_`) are no nodes.
    """
    found = signature(text)
    if found is None:
        return None
    begin, end, body_begin = found
    inner = _NEXT_CLASS_BYTES.search(text, body_begin)
    body = text[body_begin : inner.start() if inner else len(text)]
    inputs = _parameters(text[begin:end])
    if _UNFLATTEN in body:
        body, inputs = _unflattened(body, inputs)
    ops: Counter[str] = Counter()
    attributes = outputs = 0
    for (call, operator, line), count in Counter(_BODY_LINE.findall(body)).items():
        if call:
            ops[_called(call)] += count
        elif operator:
            ops[f"operator.{OPERATORS[operator.decode()]}"] += count
        elif line.startswith(b"return"):
            outputs = 1
        elif (op := _op(line)) == "get_attr":
            attributes += count
        elif op is not None:
            ops[op] += count
    return GraphCount(len(inputs) + attributes + sum(ops.values()) + outputs, dict(ops))


def signature(text: AnyStr) -> tuple[int, int, int] | None:
    """Where the parameters of the first `forward` begin, where they end, and where its line ends; None without a whole one."""
    forward, line_end, newline, arrow, bracket = _SIGNATURE_OF_STR if isinstance(text, str) else _SIGNATURE_OF_BYTES
    begin = forward.search(text)
    if begin is None:
        return None
    first = begin.end()
    for match in line_end.finditer(text, first):
        colon = match.start()
        line = max(first, text.rfind(newline, first, colon) + 1)
        end = text.find(arrow, line, colon)
        if end < 0 and text[max(line, colon - 1) : colon] == bracket:
            end = colon - 1
        if end >= 0:
            return first, end, match.end() - 1
    return None


def _parameters(signature: bytes) -> set[bytes]:
    """Names of the parameters without `self`: annotations are strings, comments may hold anything."""
    bare = _COMMENT.sub(b"", _STRING.sub(b"", signature))
    names = {part.split(b":")[0].split(b"=")[0].strip() for part in bare.split(b",")}
    return names - {b"", b"self"}


def _unflattened(body: bytes, inputs: set[bytes]) -> tuple[bytes, set[bytes]]:
    """A joint graph: its placeholders are unpacked from pytrees by `a, b, = fx_pytree.tree_flatten_spec([...])`."""
    head, _, rest = body.partition(_UNFLATTEN)
    line = head[head.rfind(b"\n") + 1 :].rsplit(b";", 1)[-1]
    names = {name.strip() for name in line.strip().rstrip(b"=").split(b",")} - {b""}
    return rest[max(0, rest.find(b"\n")) :], names or inputs


def _op(line: bytes) -> str | None:
    """What a line calls: an op's name, "get_attr", or None when the line is no node."""
    inplace = _INPLACE.match(line)
    if inplace:
        return f"operator.i{OPERATORS[inplace.group(1).decode()].rstrip('_')}"
    match = _NODE.match(line)
    if match is None:
        return "operator.setitem" if b"] = " in line else None
    value = match.group(2)
    alone = _IDENTIFIER.match(value)
    if alone:
        return None
    return _target(value)


def _target(value: bytes) -> str:
    """The name of what a right-hand side calls, as `Graph.ops` shows it."""
    if value.startswith(b"self.") and not _CALL.match(value):
        return "get_attr"
    binary = _BINARY.match(value)
    if binary:
        return f"operator.{OPERATORS[binary.group(1).decode()]}"
    call = _CALL.match(value)
    if call:
        return _called(call.group(1))
    if _ATTRIBUTE.match(value):
        return "getattr"
    return "operator.getitem" if _GETITEM.match(value) else "operator.other"


def _called(dotted: bytes) -> str:
    """The name of a call: of a method only its own, not that of the value it is called on."""
    name = dotted.decode("utf-8", "replace")
    head, dot, rest = name.partition(".")
    return name if not dot or head in ("torch", "operator", "self", "math", "builtins") or "." in rest else rest


# A text (whose words are no names) or else a name that is no keyword argument (`type='cuda'`) and no call (`device(...)`).
_TEXT_OR_NAME = re.compile(rf"""[bBrRuU]{{0,2}}(?:'(?:[^'\\]|\\.)*+'|"(?:[^"\\]|\\.)*+")|({NAME})(?![\w(]|=(?!=))""", re.DOTALL)


def argument_names(arguments: Iterable[str]) -> tuple[str, ...]:
    """The names in these arguments (`Node.args`) in order, each once: those of nodes, and `None`, `torch` and the like."""
    return tuple(dict.fromkeys(name for argument in arguments for name in _TEXT_OR_NAME.findall(argument) if name))


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
