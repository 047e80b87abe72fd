"""Advice for values and objects that Dynamo does not know: copies, NumPy, `out=`, operators without a fake."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dynadiag.changes.break_context import BreakContext, Rule, Said, rewrite, say, withhold
from dynadiag.changes.kinds import IMPORTS_TORCH, SETS_OPTION, Kind
from dynadiag.changes.legality import is_plain_index
from dynadiag.source.line import dotted
from dynadiag.source.tree import nodes_in

_NEW = frozenset(("torch.empty", "torch.zeros", "torch.ones"))
_PYTHON_VALUE = "the call returns a Python value that a graph does not have"


def not_a_tensor(context: BreakContext) -> Iterator[Said]:
    """`GB0208`: a torch function that returns a Python value."""
    if any(True for _ in context.line.calls("copy.copy", "copy")):
        yield from copies(context)
        return
    for node in context.line.nodes if "__eq__" in context.gb_context else ():
        none = isinstance(node, ast.Compare) and len(node.ops) == 1 and _is_none(node.comparators[0])
        if none and isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq | ast.NotEq):
            word = "is" if isinstance(node.ops[0], ast.Eq) else "is not"
            after = context.line.replaced(node, f"{context.line.text(node.left)} {word} {context.line.text(node.comparators[0])}")
            yield from rewrite(context, "none-is", after, "Compare with `is`: `==` compares tensor values")
            return
    yield from withhold(_PYTHON_VALUE)


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def copies(context: BreakContext) -> Iterator[Said]:
    """`copy.deepcopy(tensor)`; what has tensors inside is left as it is, and so is `copy.copy`, which shares the tensor's memory.

    Only where nothing requires a gradient: the copy of a leaf that does is a leaf, a clone is not.
    """
    call = next(context.line.calls("copy.deepcopy", "deepcopy"), None)
    place = context.place
    argument = None if call is None or not call.args or place is None else place.at(context.line, call.args[0])
    if call is not None and argument is not None and place is not None and place.no_gradient and place.is_tensor(argument):
        after = context.line.replaced(call, f"{_to_call_on(context, call.args[0])}.clone()")
        yield from rewrite(context, "copy-clone", after, "Clone the tensor: nothing here requires a gradient", own_call=True)
    else:
        yield from withhold("the copy needs the real object, which does not exist while the code is traced")


def _to_call_on(context: BreakContext, node: ast.expr) -> str:
    """The text of a value, in brackets where a method called on it would not be called on all of it."""
    text = context.line.text(node)
    return text if isinstance(node, ast.Name | ast.Attribute | ast.Call | ast.Subscript) else f"({text})"


def out_arguments(context: BreakContext) -> Iterator[Said]:
    """`torch.add(x, y, out=z)` where `z` has another shape and would be resized."""
    call, place = context.line.only_call(), context.place
    keyword = next((item for item in call.keywords if item.arg == "out"), None) if call is not None else None
    if call is not None and keyword is not None and isinstance(keyword.value, ast.Name) and place is not None:
        values = place.values(keyword.value.id)
        read_before = any(read.lineno < place.row for read in place.reads(keyword.value.id))
        fresh = not read_before and all(isinstance(expression, ast.Call) and dotted(expression.func) in _NEW for expression in values)
        if place.is_local(keyword.value.id) and fresh and place.float32:
            parts = [
                *(context.line.text(argument) for argument in call.args),
                *(context.line.text(element) for element in call.keywords if element is not keyword),
            ]
            after = f"{keyword.value.id} = {context.line.text(call.func)}({', '.join(parts)})"
            yield from rewrite(context, "out-result", after, "Use the result instead of `out=`, whose tensor has a different shape")
            return
    yield from withhold("the `out=` tensor has a different shape, and it is not known what else refers to it")


def out_slices(context: BreakContext) -> Iterator[Said]:
    """`torch.mul(x, y, out=z[:, :4])`: the part of the tensor is assigned. Other indices than slices would write into a copy.

    torch looks at the shape first (GB0247), so the result has that of the part (`torch/_dynamo/variables/torch.py`, 2.15).
    """
    call = context.line.only_call()
    keyword = next((item for item in call.keywords if item.arg == "out"), None) if call is not None else None
    part = None if keyword is None else keyword.value
    if call is not None and isinstance(part, ast.Subscript) and dotted(part.value) is not None and is_plain_index(part.slice):
        others = [*call.args, *(element for element in call.keywords if element is not keyword)]
        computed = f"{context.line.text(call.func)}({', '.join(context.line.text(node) for node in others)})"
        text = "Assign to the part of the tensor instead of `out=`, which Dynamo does not trace for one that is not contiguous"
        yield from rewrite(context, "out-assigned", f"{context.line.text(part)} = {computed}", text)
    yield from withhold("Dynamo does not trace `out=` with a tensor that is not contiguous, and it is not known what else refers to it")


def numpy_off(context: BreakContext) -> Iterator[Said]:
    """NumPy tracing was switched off: deliberate, since torch's versions of NumPy's functions may give other types and random numbers."""
    yield from withhold("`torch._dynamo.config.trace_numpy` is False here, so the break is intended")


def no_fake(context: BreakContext) -> Iterator[Said]:
    """`GB0090`: an operator without a fake implementation."""
    op = re.search(r"(?:operator: )?\b((?:\w+)\.(?:\w+))(?:\.\w+)?\s*$", context.gb_context.splitlines()[0] if context.gb_context else "")
    name = op[1].replace(".", "::", 1) if op else ""
    if not name or name.startswith("aten::"):
        yield from withhold("the operator has no implementation for tensors without data, and you cannot give it one")
        return
    text = (
        f'Tell torch what `{name}` returns: where the operator is defined, put `@torch.library.register_fake("{name}")` on a function with '
        "the same arguments that returns an empty tensor of the right shape and dtype"
    )
    yield from say("register-fake", text)


def set_data(context: BreakContext) -> Iterator[Said]:
    """`p.data = p.data * 0.9 + q.data * 0.1`: a value that is computed from the tensor itself has its shape."""
    statement, place = context.line.statement, context.place
    target = statement.targets[0] if isinstance(statement, ast.Assign) and len(statement.targets) == 1 else None
    if isinstance(statement, ast.Assign) and isinstance(target, ast.Attribute) and target.attr == "data" and place is not None:
        found = place.statement()
        itself = any(dotted(node) == dotted(target) for node in nodes_in(statement.value))
        untouched = all(_is_data(place.parent(read)) for read in place.reads(dotted(target.value) or ""))
        if itself and untouched and isinstance(found, ast.Assign) and place.same_shape(found.value, found.targets[0]):
            name = context.line.text(target.value)
            after = f"with torch.no_grad():\n    {name}.copy_({context.line.text(statement.value)})"
            yield from rewrite(context, "data-copy", after, "Write the new values into the tensor instead of replacing its memory")
            return
    yield from withhold("Dynamo does not trace replacing a tensor's memory, and the new values may have a different shape")


def _is_data(node: ast.AST | None) -> bool:
    """Whether a read is that of `p.data`: autograd can then have kept nothing of the tensor here."""
    return isinstance(node, ast.Attribute) and node.attr == "data"


VALUES: dict[str, tuple[Rule, ...]] = {
    "GB0208": (not_a_tensor,),
    "GB0179": (copies,),
    "GB4198": (copies,),
    "GB0240": (out_arguments,),
    "GB0242": (out_slices,),
    "GB0247": (out_arguments,),
    "GB0105": (numpy_off,),
    "GB0231": (numpy_off,),
    "GB0293": (numpy_off,),
    "GB0090": (no_fake,),
    "GB3069": (no_fake,),
    "GB4315": (no_fake,),
    "GB0056": (set_data,),
    "GB6602": (set_data,),
    "GB9182": (set_data,),
    "GB0220": (set_data,),
}


KINDS = (
    Kind(
        slugs=("copy-clone", "none-is", "out-result", "data-copy", "no-grad-instead-of-data"),
        applied="rewrite",
        does="the line as the advice writes it",
    ),
    Kind(slugs=("numpy-trace",), applied="option", does=SETS_OPTION, asks=IMPORTS_TORCH),
)
