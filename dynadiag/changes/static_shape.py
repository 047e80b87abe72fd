"""Operators whose result has a size that depends on values, in a form whose size does not: an idea, with what to check."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dynadiag.changes.kinds import Kind
from dynadiag.model.report import Advice
from dynadiag.source.line import SourceLine, dotted
from dynadiag.source.place import Place

STATIC = "static-shape"
_SELECTED = frozenset(("torch.nn.functional.cross_entropy", "torch.nn.functional.nll_loss"))
_DISTANCES = frozenset(f"torch.nn.functional.{name}_loss" for name in ("mse", "l1", "smooth_l1", "huber"))
"""Losses of each pair of values that are zero, with a gradient of zero, where both are the same."""
_REDUCED = frozenset(("sum", "mean"))


def static_shape(line: SourceLine, place: Place | None) -> Iterator[Advice]:
    """The line in a form of one size."""
    for node in line.nodes:
        if isinstance(node, ast.Call) and (found := _of_call(line, node)) is not None:
            new, check = found
            yield Advice(
                slug=STATIC,
                text=f"Compute a result of one size. Check {check}",
                before=line.code,
                after=line.replaced(node, new),
                how_sure="idea",
            )
            return


def _of_call(line: SourceLine, call: ast.Call) -> tuple[str, str] | None:
    name = dotted(call.func) or ""
    if name in _DISTANCES and len(call.args) == 2 and all(word.arg in ("reduction", "beta", "delta") for word in call.keywords):
        return _of_distance(line, name, call)
    if name in _SELECTED and len(call.args) >= 2 and not any(word.arg == "ignore_index" for word in call.keywords):
        logits, labels = call.args[0], call.args[1]
        if isinstance(logits, ast.Subscript) and isinstance(labels, ast.Subscript) and line.text(logits.slice) == line.text(labels.slice):
            mask, chosen = line.text(labels.slice), next((word.value for word in call.keywords if word.arg == "reduction"), None)
            if chosen is not None and not (isinstance(chosen, ast.Constant) and chosen.value in _REDUCED):
                return None  # a loss for each selected value has a size of its own
            rest = [line.text(item) for item in call.args[2:]] + [
                f"{word.arg}={line.text(word.value)}" for word in call.keywords if word.arg
            ]
            # A mask stands for its dimensions: what it selects from has the classes behind them.
            values = f"{line.text(logits.value)}.flatten(0, {_operand(mask)}.dim() - 1)"
            given = ", ".join((values, f"{line.text(labels.value)}.masked_fill(~{_operand(mask)}, -100).flatten()", *rest))
            return f"{name}({given})", f"that `{mask}` is a mask of truth values; -100 is what `ignore_index` leaves out by default"
    if (
        name == "torch.bincount"
        and call.args
        and (size := next((word.value for word in call.keywords if word.arg == "minlength"), None)) is not None
    ):
        given, count = line.text(call.args[0]), line.text(size)
        if any(word.arg == "weights" for word in call.keywords) or len(call.args) > 1:
            return None
        made = f"torch.zeros({count}, dtype=torch.long, device={given}.device)"
        return (
            f"{made}.index_add_(0, {given}, torch.ones_like({given}))",
            f"that no value reaches `{count}`, where `bincount` would make a longer result",
        )
    if isinstance(call.func, ast.Attribute) and call.func.attr in _REDUCED and not call.args and not call.keywords:
        inner = call.func.value
        if isinstance(inner, ast.Subscript) and isinstance(inner.slice, ast.Compare | ast.Name | ast.UnaryOp):
            mask, values = line.text(inner.slice), line.text(inner.value)
            total = f"torch.where({mask}, {values}, 0).sum()"
            new = total if call.func.attr == "sum" else f"{total} / {_operand(mask)}.sum()"
            return (
                new,
                f"that `{mask}` is a mask of truth values with the shape of `{values}`, without values that are not finite where it is "
                f"false",
            )
    return None


def _of_distance(line: SourceLine, name: str, call: ast.Call) -> tuple[str, str] | None:
    """`mse_loss(y[m], z[m])`: both are zero where the mask is false, and the mean is that of the others."""
    values, wanted = call.args
    kept = next((word.value for word in call.keywords if word.arg == "reduction"), ast.Constant("mean"))
    if not isinstance(values, ast.Subscript) or not isinstance(wanted, ast.Subscript) or not isinstance(kept, ast.Constant):
        return None
    mask = line.text(values.slice)
    if mask != line.text(wanted.slice) or not isinstance(values.slice, ast.Compare | ast.Name | ast.UnaryOp) or kept.value not in _REDUCED:
        return None
    filled = [f"{line.text(item.value)}.masked_fill(~{_operand(mask)}, 0)" for item in (values, wanted)]
    rest = [f"{word.arg}={line.text(word.value)}" for word in call.keywords if word.arg != "reduction"]
    total = f'{name}({", ".join((*filled, *rest))}, reduction="sum")'
    new = total if kept.value == "sum" else f"{total} / {_operand(mask)}.sum()"
    return new, f"that `{mask}` is a mask of truth values with the shape of `{line.text(values.value)}`"


def _operand(text: str) -> str:
    return text if text.isidentifier() else f"({text})"


KINDS = (
    Kind(
        slugs=(STATIC,),
        applied="rule",
        does="what a mask selects and a loss or a sum then reduces is computed without a selection: values that are left out are filled "
        "with what changes nothing (`ignore_index`, zero)",
        asks="the mask stands on the line of the loss or the sum",
    ),
)
