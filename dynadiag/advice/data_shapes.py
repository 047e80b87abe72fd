"""Advice for operators whose result has a size that depends on the values in a tensor."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dynadiag.advice.outside import outside
from dynadiag.advice.reads import TAKE_BACK, scalar_calls
from dynadiag.advice.situation import Rule, Situation, line_name, moves_to, option, quoted, rewrite, say, sketch
from dynadiag.advice.source import SourceLine, dotted
from dynadiag.model.report import Advice

# A list whose length is data: `capture_dynamic_output_shape_ops` then ends the program (GuardOnDataDependentSymNode, torch 2.15).
_LISTED = re.compile(r"\b(?:bincount|nonzero|unique|masked_select|argwhere)\(.*\.tolist\(\)")

# A slice whose bound a name gives, listed: once the bound is a symbol, the length of the list is data (GuardOnDataDependentSymNode).
_LISTED_SLICE = re.compile(r"\[[^\]]*:\s*[A-Za-z_][^\]]*\]\.tolist\(\)")
# torch marks these as of unknown size for what they read, not for what they return: the option leaves the break where it is (torch 2.15).
_READS_LENGTHS = re.compile(r"\bctc_loss\(")


def data_shapes(situation: Situation) -> Iterator[Advice]:
    """Operators whose output size depends on values: compute with a fixed size, or capture the size as a symbol."""
    fixed = tuple(_fixed_size(situation)) if situation.editable else ()
    yield from (advice for advice in fixed if advice.after)
    if situation.editable and sized_by_data(situation.line):
        yield from both_captured(situation)
        for read in scalar_calls(situation.line)[:1]:
            yield from first_true(situation, read)
        return
    if situation.editable and _LISTED.search(situation.line.code):
        text = "list it after the compiled call: torch raises an error at a list of unknown length"
        yield from () if fixed else say("tolist-outside", f"Return the tensor of {line_name(situation)} and {text}")
        return
    if situation.editable and _READS_LENGTHS.search(situation.line.code):
        yield from say("lengths-outside", f"{line_name(situation)} reads lengths on the host; no option takes it in. {outside(situation)}")
        return
    lists = sorted(code for code in situation.broken_lines if _LISTED.search(code))
    first = f"first change {quoted(lists[0])}, at which torch raises an error with this option; " if lists else ""
    yield from option(
        situation,
        "shape-capture",
        "capture_dynamic_output_shape_ops",
        " = True",
        f"Keep {situation.called} and let the graph carry the unknown size of its result "
        f"({first}{moves_to(situation) or 'later lines that branch by it then break'}; "
        f"{TAKE_BACK}; sizes 0 and 1 can fail at run time)",
    )
    yield from (advice for advice in fixed if not advice.after)


def lists_first(situation: Situation) -> str:
    """Words for an option that ends the program at another line that broke (torch 2.15).

    Such lines: a slice up to a name, listed; an operator that reads a number itself (`table[i, j] += 1`).
    """
    found = sorted({code for code in situation.broken_lines if _LISTED.search(code) or _LISTED_SLICE.search(code)} | situation.hidden_reads)
    return f"first change {quoted(found[0])}, at which torch can raise an error with this option; " if found else ""


def _fixed_size(situation: Situation) -> Iterator[Advice]:
    line = situation.line
    for call in line.calls("torch.nonzero"):
        new = f"torch.nonzero_static({', '.join(line.text(argument) for argument in call.args)}, size=<number>)"
        yield from sketch(situation, "nonzero-static", f"If you know how many there are at most: `{new}` (unused rows are -1)")
        return
    for call in line.calls("torch.masked_select"):
        if len(call.args) == 2:
            yield from _masked(situation, call, line.text(call.args[1]), line.text(call.args[0]))
            return
    for call in line.methods("bincount"):
        size = next((keyword.value for keyword in call.keywords if keyword.arg == "minlength"), None)
        if size is not None and len(call.args) == 1 and dotted(call.func) == "torch.bincount" and isinstance(call.args[0], ast.Name):
            x = line.text(call.args[0])
            new = f"torch.zeros({line.text(size)}, dtype=torch.long, device={x}.device).index_add(0, {x}, torch.ones_like({x}))"
            yield from rewrite(
                situation, "bincount-add", line.replaced(call, new), "If no value reaches `minlength` (and all are int64): add up"
            )
            return
    for call in line.methods("repeat_interleave"):
        new = f"{line.text(call)[:-1]}, output_size=<number>)"
        yield from sketch(situation, "repeat-size", f"If you know the length of the result, say it: `{new}`")
        return
    for node in line.nodes:
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Compare) and isinstance(node.ctx, ast.Load):
            yield from _masked(situation, node, line.text(node.slice), line.text(node.value))
            return


def _masked(situation: Situation, node: ast.expr, mask: str, values: str) -> Iterator[Advice]:
    """`x[mask].sum()` can keep its shape; any other use of the selection is told in words."""
    line, parent = situation.line, situation.line.parent(node)
    new = f"torch.where({mask}, {values}, 0)"
    if isinstance(parent, ast.Attribute) and parent.attr == "sum" and isinstance(call := line.parent(parent), ast.Call) and not call.args:
        yield from rewrite(
            situation, "mask-where", line.replaced(node, new), "Keep the shape and set the rest to zero: the sum is the same"
        )
    else:
        yield from sketch(situation, "mask-where", f"If only a sum follows: keep the shape and set the rest to zero, `{new}`")


def one_hot(situation: Situation) -> Iterator[Advice]:
    """`one_hot(x)` without `num_classes` reads the largest label."""
    call = next(situation.line.methods("one_hot"), None)
    if call is None or not situation.editable:
        yield from say("one-hot-classes", f"Pass `num_classes=` to `one_hot` ({situation.called})")
        return
    new = f"{situation.line.text(call)[:-1]}, num_classes=<number>)"
    yield from say("one-hot-classes", f"Say the number of classes, so that it is not read from the data: `{new}`")


def sized_by_data(line: SourceLine) -> bool:
    """Whether the line also has an operator whose result has a size that depends on data: then one option alone cures nothing."""
    return any(True for _ in line.methods("nonzero", "unique", "masked_select", "argwhere")) and bool(scalar_calls(line))


def both_captured(situation: Situation) -> Iterator[Advice]:
    """Advice to set both options: a line that reads a number from a result of unknown size is cured by neither alone."""
    names = ("torch._dynamo.config.capture_dynamic_output_shape_ops", "torch._dynamo.config.capture_scalar_outputs")
    if all(situation.options.known("dynamo", name.rpartition(".")[2]) == "yes" for name in names):
        text = f"Keep {line_name(situation)} and let the graph carry the unknown size and the number as symbols: both options ({TAKE_BACK})"
        yield Advice(slug="both-capture", text=text, after="\n".join(f"{name} = True" for name in names), options=names)


def first_true(situation: Situation, read: ast.Call) -> Iterator[Advice]:
    """`(a == b).nonzero()[0].item()`: the place of the first match is an argmax."""
    line = situation.line
    inner = read.func.value if isinstance(read.func, ast.Attribute) else None
    call = inner.value if isinstance(inner, ast.Subscript) and line.text(inner.slice) == "0" else inner
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "nonzero" and not call.args:
        mask = call.func.value
        text = line.text(mask) if isinstance(mask, ast.Name | ast.Attribute | ast.Call | ast.Subscript) else f"({line.text(mask)})"
        said = (
            f"Or take the place of the first match as a tensor, `{text}.to(torch.uint8).argmax()` (0 if nothing matches), and pick by it "
            "with `index_select(0, place.reshape(1)).squeeze(0)`"
        )
        yield from sketch(situation, "nonzero-argmax", said)


DATA_SHAPES: dict[str, tuple[Rule, ...]] = {
    "GB0036": (data_shapes,),
    "GB0037": (data_shapes,),
    "GB0246": (one_hot,),
}
