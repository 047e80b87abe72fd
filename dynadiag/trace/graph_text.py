"""Counts the nodes and ops of a graph while its text streams by (`torch.fx.graph.CodeGen`, torch 2.11 and 2.15)."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Any, AnyStr

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
_NEXT_CLASS = re.compile(rb"\n {0,4}class ")
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
    inner = _NEXT_CLASS.search(text, body_begin)
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
