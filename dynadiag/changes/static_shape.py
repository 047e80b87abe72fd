"""Operators whose result has a size that depends on values, in a form whose size does not: an idea, with what to check."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dynadiag.model.report import Advice
from dynadiag.source.line import SourceLine, dotted
from dynadiag.source.place import Place

STATIC = "static-shape"
_SELECTED = frozenset(("torch.nn.functional.cross_entropy", "torch.nn.functional.nll_loss"))
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
            new = total if call.func.attr == "sum" else f"{total} / ({mask}).sum()"
            return (
                new,
                f"that `{mask}` is a mask of truth values with the shape of `{values}`, without values that are not finite where it is "
                f"false",
            )
    return None


def _operand(text: str) -> str:
    return text if text.isidentifier() else f"({text})"
