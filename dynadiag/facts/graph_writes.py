"""Writes that a graph's text shows, for graphs that the probe did not follow: an alias analysis by name, without torch."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from dynadiag.dotted_names import lies_in
from dynadiag.model.graph import Node
from dynadiag.model.location import Location
from dynadiag.trace.graph_text import argument_names

# Methods and functions whose result shares memory with their first argument (torch's view operators and `detach`).
_VIEWS = frozenset((
    "view", "view_as", "reshape", "select", "narrow", "t", "transpose", "permute", "squeeze", "unsqueeze", "expand", "expand_as", "detach",
    "alias", "data", "T", "mT", "H", "mH", "real", "imag", "chunk", "split", "tensor_split", "unbind", "flatten", "unflatten", "diagonal",
    "unfold", "swapaxes", "swapdims", "movedim", "moveaxis", "ravel", "as_strided", "getitem", "numpy", "__getitem__", "lift_fresh",
    "_get_data_attr",
))  # fmt: skip
# By op: how a line of a graph's text shows it.
INPLACE_SYMBOLS = {
    "operator.iadd": " += ", "operator.isub": " -= ", "operator.imul": " *= ", "operator.itruediv": " /= ", "operator.ifloordiv": " //= ",
    "operator.imod": " %= ", "operator.ipow": " **= ", "operator.iand": " &= ", "operator.ior": " |= ", "operator.ixor": " ^= ",
    "operator.ilshift": " <<= ", "operator.irshift": " >>= ", "operator.imatmul": " @= ",
}  # fmt: skip
# Python's operators whose names end in an underscore only because they are keywords: `x & y` is `operator.and_`.
_READING = frozenset({"operator.and_", "operator.or_", "operator.not_", "operator.is_", "operator.is_not"})
PRIVATE_OPERATOR = re.compile(r"^torch\.ops\.(?!aten\b|prims\b|prim\b|higher_order\b|inductor\b)\w+\.\w+")


@dataclass(slots=True)
class TextWrites:
    """Who writes what: `inputs` by placeholder or attribute, `inner` on tensors made in the graph, `maybe` by operators of private code."""

    inputs: dict[str, list[Node]] = field(default_factory=dict)
    inner: list[Node] = field(default_factory=list)
    maybe: dict[str, list[Node]] = field(default_factory=dict)


def text_writes(nodes: Sequence[Node]) -> TextWrites:
    """The writes in a graph, by the lower-case names of the inputs that they reach through views.

    The text of a Dynamo graph names an input `L_x_` in its signature and `l_x_` behind it.
    """
    found = TextWrites()
    roots: dict[str, frozenset[str]] = {}
    for node in nodes:
        if node.op in ("placeholder", "get_attr"):
            root = (node.name if node.op == "placeholder" else node.target).lower()
            roots[node.name] = roots[node.name.lower()] = frozenset([root])
            continue
        first = _reached(node.args[:1], roots)
        if is_write(node):
            _note(found, node, first)
            roots[node.name] = first
        elif PRIVATE_OPERATOR.match(node.target):
            for root in sorted(_reached(node.args, roots)):
                found.maybe.setdefault(root, []).append(node)
        elif _is_view(node):
            roots[node.name] = first
    return found


def _note(found: TextWrites, node: Node, roots: frozenset[str]) -> None:
    for root in sorted(roots):
        found.inputs.setdefault(root, []).append(node)
    if not roots:
        found.inner.append(node)


def _reached(arguments: Sequence[str], roots: dict[str, frozenset[str]]) -> frozenset[str]:
    return frozenset(root for name in argument_names(arguments) for root in roots.get(name, ()))


def _last(target: str) -> str:
    """`add_` of `torch.ops.aten.add_.Tensor` and of the method `add_`."""
    parts = target.split(".")
    return parts[-2] if lies_in(target, "torch.ops") and len(parts) > 4 else parts[-1]


def is_write(node: Node) -> bool:
    """Whether a node writes in place, by its name."""
    return node.op in ("call_method", "call_function") and names_write(node.target)


def names_write(op: str) -> bool:
    """Whether a function or method of this name (one of `Graph.ops`) writes in place."""
    name = _last(op)
    by_name = name.endswith("_") and not name.endswith("__") and len(name) > 1
    return (by_name and op not in _READING) or op == "operator.setitem" or op in INPLACE_SYMBOLS


def _is_view(node: Node) -> bool:
    return _last(node.target) in _VIEWS or (node.target == "getattr" and node.args[1:2] != () and node.args[1].strip("'\"") in _VIEWS)


def place(node: Node) -> tuple[Location, ...]:
    """The user line above a node, as a stack of one."""
    return () if node.location is None else (node.location,)
