"""Advice for reading values out of tensors: `.item()`, branches and loops on data, shapes that depend on data."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace

from dynadiag.advice.branches import branches, condition_of, draws, only_chosen, random_numbers, subject, tensor_of
from dynadiag.advice.data_shapes import both_captured, first_true, lists_first, sized_by_data
from dynadiag.advice.item_calls import appended, bounded
from dynadiag.advice.math_calls import ARITHMETIC, computed_with_torch, detached, in_untraced_math, math_function, number_call
from dynadiag.advice.outside import outside
from dynadiag.advice.printing import LOGGER_METHODS, loggers
from dynadiag.advice.reads import TAKE_BACK, in_hook, in_key, scalar_calls
from dynadiag.advice.situation import Rule, Situation, line_name, moves_to, option, quoted, rewrite, say, sketch
from dynadiag.advice.source import SourceLine, dotted
from dynadiag.advice.uses import collected_in, number_needed
from dynadiag.model.report import Advice

_SIZE = re.compile(
    r"^(n|k|m|h|w)$|(^|_)(num|n|len|length|lengths|size|sizes|count|counts|start|end|stop|width|height|idx|index|steps?|max_len)(_|$)|^(len|num)"
)
DETACHED = "`detach()` because a number carries no gradient"
_SYMBOLIC_ONLY = ("range", "sorted", "min", "max")


def scalar_reads(situation: Situation) -> Iterator[Advice]:
    """`.item()`, `float(t)`, `int(t)`, `bool(t)`: keep a tensor where the use allows, else capture the scalar in the graph."""
    line = situation.broken
    read = _scalar_read(line)
    if read is not None and situation.editable and in_hook(line, read):
        yield from _hooked(situation)
        return
    if read is not None and situation.editable and (collected := collected_in(situation.block)) is not None:
        text = (
            f"The number goes into a collection that grows ({quoted(collected)}), whose length compiled code is guarded by: keep this "
            "function in plain Python (`@torch.compiler.disable` above it), and compile what computes before and after it"
        )
        yield from say("item-collect", text)
        return
    if read is not None and situation.editable and in_key(line, read):
        text = (
            f"{line_name(situation)} puts values in an order in Python: return the tensors and do this after the compiled call, or order "
        )
        yield from say("item-order", f"{text}them as one tensor (`torch.stack`, then `topk`, and `index_select` to pick)")
        return
    use = None if read is None else line.parent(read)
    kept = tuple(_kept_tensor(situation, read, use)) if read is not None and situation.editable and not _of_numpy(read) else ()
    if moves_to(situation) and read is not None and any(one.slug == "item-keep-tensor" for one in kept):
        kept = tuple(replace(one, text=f"{one.text}; {moves_to(situation)}") for one in kept)
    elif situation.editable and number_needed(situation.block) is not None:
        kept = tuple(one for one in kept if one.slug not in ("item-keep-tensor", "item-clamp"))
    kept = kept or (tuple(tensor_index(situation)) if read is None else ())
    captured = tuple(_captured(situation, line, use))
    first, second = (captured, kept) if _names_a_size(line) or sized_by_data(line) else (kept, captured)
    yield from (*first, *second)
    if situation.editable and _two_sided_slice(line):
        pieces = "use `index_select` or `index_copy_` with `torch.arange(length) + start`"
        text = f"{line_name(situation)} takes a piece whose place is data: {pieces}"
        yield from say("slice-index", text)
    if situation.editable and not kept and not _only_a_number(line, use) and not _loop_bound(line) and not sized_by_data(line):
        yield from say("item-outside", f"{line_name(situation)} needs the value of a tensor. {outside(situation)}")


def _captured(situation: Situation, line: SourceLine, use: ast.AST | None) -> Iterator[Advice]:
    if sized_by_data(line) and situation.editable:
        yield from both_captured(situation)
    elif (
        _only_a_number(line, use)
        and not any(True for _ in line.methods("tolist"))
        and not (_two_sided_slice(line) and (situation.torch is None or situation.torch < (2, 15)))
    ):
        yield from option(
            situation,
            "item-capture",
            "capture_scalar_outputs",
            " = True",
            f"Keep {situation.called}: Dynamo then takes the number into the graph as a symbol "
            f"({lists_first(situation)}{moves_to(situation) or 'later lines must not decide a branch by it'}; {TAKE_BACK})",
        )


def _of_numpy(read: ast.Call) -> bool:
    """Whether the value is one that NumPy computes: in eager it is no tensor, and has no `detach()`."""
    return any(isinstance(node, ast.Name) and node.id in ("np", "numpy") for node in ast.walk(read))


def _names_a_size(line: SourceLine) -> bool:
    """Whether the line gives the number a name that says that it is a size or a place, for which a tensor would not do."""
    statement = line.statement
    names = [target.id for target in statement.targets if isinstance(target, ast.Name)] if isinstance(statement, ast.Assign) else []
    return any(_SIZE.search(name) for name in names)


def _kept_tensor(situation: Situation, read: ast.Call, use: ast.AST | None) -> Iterator[Advice]:
    line, inner = situation.line, tensor_of(situation.line, read)
    if sized_by_data(line):
        yield from first_true(situation, read)
    elif (test := condition_of(line)) is not None and not only_chosen(line, test, read):
        yield from branches(situation, drop=read)
    elif _is_cast(read, "bool"):
        text = f"Keep the condition a tensor: `{inner}`, and choose with `torch.where({inner}, a, b)` where it is used"
        yield from sketch(situation, "bool-where", text)
    elif _loop_bound(line):
        yield from _outside_number(inner)
    elif isinstance(use, ast.Subscript | ast.Slice):
        yield from _index(situation, inner, use)
    elif isinstance(use, ast.Call) and isinstance(use.func, ast.Attribute) and use.func.attr == "append":
        yield from appended(situation, inner, use.func.value)
    elif isinstance(use, ast.Call) and (clamped := bounded(line, read, use, inner)) is not None:
        yield from rewrite(situation, "item-clamp", clamped, f"Bound the tensor on the device instead of the number ({ARITHMETIC})")
    elif any(True for _ in line.methods(*LOGGER_METHODS)) and line.statement_is_call():
        yield from loggers(situation)
    elif (call := _print_around(line, read)) is not None:
        yield from _printed(situation, call)
    elif number_call(line, read) is not None:
        yield from computed_with_torch(situation, read)
    elif isinstance(use, ast.AugAssign):
        text = f"Add up the tensor: `{line.text(use.target)}` becomes a tensor, read it with `.item()` after the compiled call"
        yield from rewrite(situation, "item-sum", line.replaced(read, detached(inner)), text)
    elif _may_stay_tensor(read, use):
        changes = [(one, detached(tensor_of(line, one))) for one in scalar_calls(line) if _may_stay_tensor(one, line.parent(one))]
        after = line.replaced_all(_outermost(changes, line))
        if isinstance(line.statement, ast.Return) and isinstance(use, ast.Return | ast.Tuple | ast.List | ast.Dict):
            text = f"Return the tensor, and read it with `.item()` where the result is used, after the compiled call ({DETACHED})"
            yield from rewrite(situation, "item-return-tensor", after, text)
            return
        if (kept := _kept_outside(line)) is not None:
            text = (
                f"Keep the tensor: `{kept}` becomes one, so read it with `.item()` wherever it is printed, rounded or logged ({DETACHED})"
            )
        else:
            text = f"Keep the tensor: drop {_dropped(read)} ({ARITHMETIC}; {DETACHED})"
        yield from rewrite(situation, "item-keep-tensor", after, text)


def _kept_outside(line: SourceLine) -> str | None:
    """The attribute or entry that the line puts the number into: code outside of the function reads it as a number (`round`, `json`)."""
    statement = line.statement
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target] if isinstance(statement, ast.AugAssign) else []
    found = next((target for target in targets if isinstance(target, ast.Attribute | ast.Subscript)), None)
    return None if found is None else line.text(found)


def _hooked(situation: Situation) -> Iterator[Advice]:
    text = (
        f"The lambda of {line_name(situation)} runs as a hook in the backward pass: make it once outside the compiled function as "
        "`torch.compiler.disable(lambda ...)` and register that; it then runs eager on purpose, and the break there is deliberate"
    )
    yield from say("item-hook", text)


def _two_sided_slice(line: SourceLine) -> bool:
    """A slice with two bounds that are data: torch 2.11 cannot capture it."""
    slices = (node for node in line.nodes if isinstance(node, ast.Slice))
    return any(not isinstance(one.lower, ast.Constant | None) and not isinstance(one.upper, ast.Constant | None) for one in slices)


def _printed(situation: Situation, call: ast.Call) -> Iterator[Advice]:
    """`print("loss", loss.item())`, `print(f"{loss.item():.4f}")`: text of a tensor can be made after the graph."""
    line = situation.line
    has = situation.options.known("dynamo", "reorderable_logging_functions")
    if call.keywords or has == "no":
        return
    changes = []
    for read in scalar_calls(line):
        inner, parent = tensor_of(line, read), line.parent(read)
        if isinstance(parent, ast.FormattedValue):
            changes.append((read, inner))
        elif parent is call and not ('"' in inner and "'" in inner) and "\\" not in inner:
            quote = "'" if '"' in inner else '"'
            changes.append((read, f"f{quote}{{{inner}}}{quote}"))
        else:
            return
    text = (
        "Print text made of the tensor, after the graph (say `torch._dynamo.config.reorderable_logging_functions.add(print)` once before)"
    )
    doubt = " (if your torch has it)" if has == "unknown" else ""
    options = ("torch._dynamo.config.reorderable_logging_functions",)
    yield from rewrite(situation, "item-print", line.replaced_all(changes), f"{text}{doubt}", options=options)


def _print_around(line: SourceLine, read: ast.Call) -> ast.Call | None:
    """The `print(...)` that is the whole statement around the read."""
    call = next(line.calls("print"), None)
    around: ast.AST | None = read
    while around is not None and around is not call:
        around = line.parent(around)
    return call if around is not None else None


def _outermost(changes: list[tuple[ast.Call, str]], line: SourceLine) -> list[tuple[ast.Call, str]]:
    """The changes that are not inside another one: `float(x.item())` is one read."""
    nodes = {id(node) for node, _ in changes}

    def inside(node: ast.AST) -> bool:
        parent = line.parent(node)
        return parent is not None and (id(parent) in nodes or inside(parent))

    return [(node, new) for node, new in changes if not inside(node)]


def _index(situation: Situation, inner: str, use: ast.Subscript | ast.Slice) -> Iterator[Advice]:
    """`values[i.item()]`: what `values` is, the line does not say; only a tensor has `index_select`."""
    line = situation.line
    if isinstance(use, ast.Subscript) and isinstance(use.value, ast.Name | ast.Attribute) and isinstance(use.ctx, ast.Load):
        base = line.text(use.value)
        where = f"return `{detached(inner)}` and look it up in `{base}` after the compiled call"
        by_tensor = f"`{base}.index_select(0, {inner}.reshape(1)).squeeze(0)`"
        text = (
            f"If `{base}` is a list or a dict of Python values: {where}. If it is a tensor: index it with the tensor, {by_tensor}; "
            f"if it is a list of tensors of one shape: `torch.stack({base})` first"
        )
        yield from sketch(situation, "item-index-select", text)


def _outside_number(inner: str) -> Iterator[Advice]:
    text = f"Read `{inner}` once outside the compiled function and pass in the Python number: the number of steps of a loop must be known"
    yield from say("number-outside", text)


def slices(situation: Situation) -> Iterator[Advice]:
    """`x[:n]` with a tensor `n`: take a Python number from outside, or capture it."""
    if situation.editable and _loop_bound(situation.line) and _scalar_read(situation.line) is None:
        bound = next(situation.line.calls("range"), None)
        yield from _outside_number(situation.line.text(bound.args[-1]) if bound is not None and bound.args else "the bound")


def data_operators(situation: Situation) -> Iterator[Advice]:
    """Operators that return a Python value (`GB0033`): use the one that returns a tensor."""
    line = situation.line
    for name, new in (("torch.equal", "({0} == {1}).all()"), ("torch.allclose", "torch.isclose({0}, {1}).all()")):
        for call in line.calls(name):
            if len(call.args) >= 2 and situation.editable:
                yield from _comparison(situation, call, new.format(line.text(call.args[0]), line.text(call.args[1])))
                return
    for node in line.nodes:
        if isinstance(node, ast.Call) and (function := math_function(node)) is not None:
            argument = node.args[0]
            text = line.text(argument)
            simple = isinstance(argument, ast.Name | ast.Attribute | ast.Call | ast.Subscript)
            after = line.replaced(node, f"torch.{function}({detached(text if simple else f'({text})')})")
            yield from rewrite(situation, "item-math", after, f"Compute on the tensor with torch instead of math ({ARITHMETIC})")
            return
    if draws(situation):
        yield from random_numbers(situation)
        return
    if any(isinstance(node, ast.BoolOp | ast.IfExp) for node in situation.broken.nodes):
        return
    kept = tuple(lists(situation))
    if any(one.slug == "tolist-outside" for one in kept):
        yield from kept
        return
    yield from () if _names_a_size(situation.line) else kept
    # `torch.roll(x, k)` with a drawn `k`, `table[i, j] += 1`: the line reads no number, and its operator may not take a symbol (2.15).
    if _draws_in_numpy(situation) or (situation.editable and not kept and _scalar_read(situation.line) is None):
        return
    yield from option(
        situation,
        "item-capture",
        "capture_scalar_outputs",
        " = True",
        f"Let Dynamo take the number that {situation.called} reads into the graph as a symbol "
        f"({lists_first(situation)}{moves_to(situation) or 'later lines must not decide a branch by it'}; {TAKE_BACK})",
    )
    yield from kept if _names_a_size(situation.line) else ()


def _draws_in_numpy(situation: Situation) -> bool:
    """Whether a library's line that broke draws with NumPy: what it draws decides how the library goes on."""
    return not situation.editable and re.search(r"\b(?:np|numpy)\.random\.", situation.broken.code) is not None


def _comparison(situation: Situation, call: ast.Call, new: str) -> Iterator[Advice]:
    statement = situation.line.statement
    if isinstance(statement, ast.If):
        negated = isinstance(statement.test, ast.UnaryOp) and statement.test.operand is call
        if statement.test is not call and not negated:
            yield from sketch(situation, "equal-where", f"Compare on the device with `{new}`, and choose with `torch.where`")
            return
        new = f"torch.logical_not({new})" if negated else new
        text = (
            f"Compare on the device and choose for each tensor `y` that the branch sets: `y = torch.where({new}, <value in the branch>, y)`"
        )
        yield from sketch(situation, "equal-where", text)
    else:
        text = "Compare on the device: the result stays a tensor (the shapes must be equal)"
        yield from rewrite(situation, "equal-tensor", situation.line.replaced(call, new), text)


def lists(situation: Situation) -> Iterator[Advice]:
    """`t.tolist()`: the elements as 0-d tensors where the line and what stands behind it only compute with them, else outside."""
    line = situation.line
    calls = [call for call in line.methods("tolist") if isinstance(call.func, ast.Attribute)]
    if not calls:
        return
    used = number_needed(situation.block) or (situation.block.decided_later() if situation.block is not None else None)
    if used is None and all(_elements_may_stay(line, call) for call in calls):
        changes = [(call, f"{line.text(call.func.value)}.unbind()") for call in calls if isinstance(call.func, ast.Attribute)]
        text = "Take the elements as 0-d tensors instead of Python numbers (a tensor of one dimension; later lines only compute with them)"
        yield from rewrite(situation, "tolist-unbind", line.replaced_all(changes), text)
        return
    why = f": {quoted(used)} needs Python numbers" if used is not None else ""
    text = (
        f"End the compiled function before {line_name(situation)} and return the tensors that it lists{why}; call `tolist()` and go on in "
        "plain Python, and compile what computes behind it as a function of its own"
    )
    yield from sketch(situation, "tolist-outside", text)


def _elements_may_stay(line: SourceLine, call: ast.Call) -> bool:
    """Whether the list is bound, looped over or indexed as it is; a set, a sort, a text or another function needs numbers."""
    node = line.parent(call)
    while isinstance(node, ast.Call) and dotted(node.func) in ("zip", "enumerate", "reversed", "list", "tuple", "sum"):
        node = line.parent(node)
    if isinstance(node, ast.comprehension):
        taken = {one.id for one in ast.walk(node.target) if isinstance(one, ast.Name)}
        read = [one for one in line.nodes if isinstance(one, ast.Name) and one.id in taken and isinstance(one.ctx, ast.Load)]
        return all(isinstance(line.parent(one), ast.BinOp) for one in read)
    return isinstance(node, ast.Assign | ast.For | ast.BinOp | ast.Subscript)


def tensor_index(situation: Situation) -> Iterator[Advice]:
    """A Python list indexed by a tensor."""
    found = (node for node in situation.line.nodes if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Name))
    node = next(found, None)
    if node is None:
        return
    if not situation.editable:
        return
    base, index = situation.line.text(node.value), situation.line.text(node.slice)
    after = situation.line.replaced(node, f"torch.as_tensor({base})[{index}]")
    yield from rewrite(
        situation, "list-to-tensor", after, f"Make `{base}` a tensor (for tensors `torch.stack`), then a tensor can index it"
    )


def tensor_operations(situation: Situation) -> Iterator[Advice]:
    """A builtin operator on something that is no plain tensor, such as Python's or NumPy's random numbers (`GB0213`)."""
    if draws(situation):
        yield from random_numbers(situation)
    else:
        yield from say("call-outside", outside(situation))


def guards_on_data(situation: Situation) -> Iterator[Advice]:
    """A symbol of unknown value had to be decided (after `capture_scalar_outputs`): tell torch what holds, or stay with tensors."""
    yield from say(
        "unbacked-check",
        f"{subject(situation)} must decide something by a number that is only known at run time: keep it a tensor, "
        "or state what always holds with `torch._check(...)` just before",
    )


def _scalar_read(line: SourceLine) -> ast.Call | None:
    return next(iter(scalar_calls(line)), None)


def _is_cast(read: ast.Call, name: str) -> bool:
    return isinstance(read.func, ast.Name) and read.func.id == name


def _dropped(read: ast.Call) -> str:
    return "`.item()`" if isinstance(read.func, ast.Attribute) else f"`{dotted(read.func)}(...)`"


def _may_stay_tensor(read: ast.Call, use: ast.AST | None) -> bool:
    if _is_cast(read, "int"):
        return False
    return isinstance(use, ast.BinOp | ast.Assign | ast.Return | ast.Dict | ast.ListComp | ast.GeneratorExp | ast.List | ast.Tuple)


def _only_a_number(line: SourceLine, use: ast.AST | None) -> bool:
    """Whether capturing the scalar cures this use: not when it decides a branch, a loop or an order, or picks from what may be a list."""
    if condition_of(line) is not None or _loop_bound(line) or in_untraced_math(line):
        return False
    if any(True for _ in line.calls("bool", "print", *_SYMBOLIC_ONLY)) or any(True for _ in line.methods("append", *LOGGER_METHODS)):
        return False
    return not isinstance(use, ast.Subscript | ast.FormattedValue)


def _loop_bound(line: SourceLine) -> bool:
    return isinstance(line.statement, ast.For) or any(True for _ in line.calls("range"))


SCALARS: dict[str, tuple[Rule, ...]] = {
    "GB0124": (slices, scalar_reads),
    "GB0170": (branches,),
    "GB0035": (branches,),
    "GB0034": (branches,),
    "GB0033": (data_operators,),
    "GB0070": (tensor_index,),
    "GB0109": (lists,),
    "GB0213": (tensor_operations,),
    "GB7596": (tensor_index,),
    "GB2582": (branches,),
}
