"""What the program does with a number that a statement reads out of a tensor: whether a tensor would do in its place.

Read from the recorded block; names are followed only while the text says plainly what they hold.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from dynadiag.advice.blocks import Block
from dynadiag.advice.source import dotted

# Calls that take a number or a tensor alike; torch's own functions and methods of tensors do too.
_TAKES_BOTH = frozenset(("sum", "abs", "zip", "enumerate", "reversed", "list", "tuple"))
# Functions and methods of torch whose arguments, but for the tensor, are sizes, places or counts.
_TAKE_SIZES = frozenset(
    (
        "roll", "narrow", "split", "chunk", "tensor_split", "topk", "kthvalue", "repeat", "expand", "view", "reshape", "unfold",
        "unflatten", "randint", "one_hot", "pad", "interpolate", "tile", "resize_", "new_zeros", "new_ones", "new_empty", "select", "flip",
    )
)  # fmt: skip
_COLLECTS = frozenset(("append", "add", "insert", "extend", "update", "setdefault", "put", "push", "appendleft", "remove", "discard"))


def number_needed(block: Block | None) -> str | None:
    """The first line that uses what the broken statement binds in a way only a Python number serves; None where none is shown.

    Such uses: a key or place in a container, a member of a collection, an argument of a function that is not torch's, text, and the
    value that the function returns. Branches are not among them (`Block.decided_later`).
    """
    if block is None:
        return None
    first = block.statements[0]
    names = _bound(first)
    later = [*_body(first), *block.statements[1:]]
    for statement in later if names else ():
        for node in _own_nodes(statement):
            if (
                isinstance(node, ast.Name | ast.Attribute)
                and dotted(node) in names
                and isinstance(node.ctx, ast.Load)
                and _must_be_number(block, statement, node)
            ):
                return (ast.get_source_segment(block.code, statement) or "").partition("\n")[0].strip()
    return None


def collected_in(block: Block | None) -> str | None:
    """The later line that puts what the broken assignment binds into a list or set of Python's, by itself; None where none is shown."""
    names = set() if block is None else _bound(block.statements[0])
    for statement in block.statements[1:] if block is not None else ():
        for node in (one for part in (statement, *_body(statement)) for one in _own_nodes(part)):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or len(node.args) != 1:
                continue
            if block is not None and node.func.attr in ("append", "appendleft", "add") and dotted(node.args[0]) in names:
                return block.text(node)
    return None


def _bound(statement: ast.stmt) -> set[str]:
    if isinstance(statement, ast.Assign):
        targets: Sequence[ast.expr] = statement.targets
    elif isinstance(statement, ast.For):
        targets = [statement.target]
    else:
        return set()
    kept = {name for target in targets if isinstance(target, ast.Attribute) and (name := dotted(target)) is not None}
    return kept or {node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)}


def _body(statement: ast.stmt) -> Iterator[ast.stmt]:
    """The statements inside a compound statement, inner ones too."""
    for one in [*getattr(statement, "body", ()), *getattr(statement, "orelse", ())]:
        if isinstance(one, ast.stmt):
            yield one
            yield from _body(one)


def _own_nodes(statement: ast.stmt) -> Iterator[ast.AST]:
    """The nodes of a statement; a compound one only with its header, since its body is read on its own."""
    inner = {id(node) for one in _body(statement) for node in ast.walk(one)}
    return (node for node in ast.walk(statement) if id(node) not in inner)


def _must_be_number(block: Block, statement: ast.stmt, name: ast.expr) -> bool:
    parents = {id(child): node for node in ast.walk(statement) for child in ast.iter_child_nodes(node)}
    node: ast.AST = name
    mixed = sliced = False  # arithmetic with another name may be with a tensor, and is then one itself
    while (parent := parents.get(id(node))) is not None:
        if isinstance(parent, ast.Subscript):
            return node is parent.slice and (sliced or not mixed)
        if isinstance(parent, ast.Call):
            given = node is not parent.func and not takes_tensors(parent, node)
            return given and (not mixed or _wants_number(parent))
        if mixed and not isinstance(parent, ast.BinOp | ast.Slice | ast.Tuple):
            return False
        if isinstance(parent, ast.Compare) and any(isinstance(op, ast.In | ast.NotIn) for op in parent.ops):
            return True
        if isinstance(parent, ast.FormattedValue | ast.Return | ast.Yield | ast.Dict | ast.Set | ast.Raise):
            return True
        if isinstance(parent, ast.BinOp) and not (isinstance(parent.left, ast.Constant) or isinstance(parent.right, ast.Constant)):
            mixed = True
        sliced = sliced or isinstance(parent, ast.Slice)
        if isinstance(parent, ast.Attribute | ast.Lambda):
            return False
        node = parent
    return False


def _wants_number(call: ast.Call) -> bool:
    return (dotted(call.func) or "").rpartition(".")[2] in _TAKE_SIZES | {"int", "float", "range"}


def takes_tensors(call: ast.Call, argument: ast.AST | None = None) -> bool:
    """Whether the call computes on tensors as on numbers: torch's functions but for the factories, methods that collect nothing.

    `argument` is the one in question: sizes and distances (`torch.roll(x, k)`, `x.view(n, -1)`) are read as numbers, what is rolled is not.
    """
    name = dotted(call.func) or ""
    if _wants_number(call) and not (name.startswith(("torch.", "F.")) and call.args and argument is call.args[0]):
        return False
    if name.startswith(("torch.", "F.")):
        return name not in ("torch.tensor", "torch.as_tensor", "torch.full", "torch.zeros", "torch.ones", "torch.empty", "torch.arange")
    if isinstance(call.func, ast.Attribute):
        return call.func.attr not in _COLLECTS and not isinstance(call.func.value, ast.Constant) and not name.startswith(("math.", "np."))
    return name in _TAKES_BOTH
