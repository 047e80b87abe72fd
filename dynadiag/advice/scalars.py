"""Advice for reading values out of tensors: `.item()`, branches and loops on data, shapes that depend on data."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dynadiag.advice.situation import Rule, Situation, line_name, option, quoted, rewrite, say
from dynadiag.advice.source import dotted
from dynadiag.model.report import Advice

_CASTS = ("float", "int", "bool")
_SYMBOLIC_ONLY = ("range", "sorted", "min", "max")


def scalar_reads(situation: Situation) -> Iterator[Advice]:
    """`.item()`, `float(t)`, `int(t)`, `bool(t)`: keep a tensor where the use allows, else capture the scalar in the graph."""
    read = _scalar_read(situation)
    use = None if read is None else situation.line.parent(read)
    if read is not None and situation.editable:
        yield from _kept_tensor(situation, read, use)
    if read is None:
        yield from tensor_index(situation)
    if _only_a_number(situation, use):
        yield from option(
            situation,
            "item-capture",
            "capture_scalar_outputs",
            " = True",
            f"Or keep {line_name(situation)}: Dynamo then takes the number into the graph as a symbol (it must not decide a branch)",
        )
    if not situation.editable:
        text = f"The read is in {situation.where}, which you cannot edit: pass in what avoids it, or call {line_name(situation)} outside"
        yield from say("item-library", text, situation=situation)


def _kept_tensor(situation: Situation, read: ast.Call, use: ast.AST | None) -> Iterator[Advice]:
    line, inner = situation.line, _tensor_of(situation, read)
    if _condition(situation) is not None:
        yield from branches(situation, drop=read)
    elif _is_cast(read, "bool"):
        text = f"Keep the condition a tensor: `{inner}`, and choose with `torch.where({inner}, a, b)` where it is used"
        yield from rewrite(situation, "bool-where", f"torch.where({inner}, ...)", text)
    elif _loop_bound(situation):
        yield from _outside_number(situation, inner)
    elif isinstance(use, ast.Subscript | ast.Slice):
        yield from _index(situation, read, inner, use)
    elif isinstance(use, ast.Call) and isinstance(use.func, ast.Attribute) and use.func.attr == "append":
        text = f"Collect the tensor, and call `.item()` on `{line.text(use.func.value)}` after the compiled call"
        yield from rewrite(situation, "item-append", line.replaced(read, f"{inner}.detach()"), text)
    elif isinstance(use, ast.Call) and dotted(use.func) == "print":
        text = "Print the tensor itself, after the graph (`torch._dynamo.config.reorderable_logging_functions.add(print)` once)"
        yield from rewrite(
            situation,
            "item-print",
            line.replaced(read, inner),
            text,
            options=("torch._dynamo.config.reorderable_logging_functions",),
        )
    elif isinstance(use, ast.Call) and (dotted(use.func) or "").startswith("math."):
        after = line.replaced(use, f"torch.{(dotted(use.func) or '')[5:]}({inner})")
        yield from rewrite(situation, "item-math", after, "Compute on the tensor with torch instead of math")
    elif _may_stay_tensor(read, use):
        text = f"Keep the tensor: drop {_dropped(read)}; a 0-d tensor works in arithmetic with tensors"
        yield from rewrite(situation, "item-keep-tensor", line.replaced(read, inner), text)


def _index(situation: Situation, read: ast.Call, inner: str, use: ast.Subscript | ast.Slice) -> Iterator[Advice]:
    line = situation.line
    if isinstance(use, ast.Subscript) and isinstance(use.value, ast.Name):
        base = line.text(use.value)
        text = f"Index with a tensor (if `{base}` is a list of tensors of one shape, `torch.stack({base})` first)"
        after = line.replaced(use, f"{base}.index_select(0, {inner}.reshape(1)).squeeze(0)")
        yield from rewrite(situation, "item-index-select", after, text)


def _outside_number(situation: Situation, inner: str) -> Iterator[Advice]:
    text = f"Read `{inner}` once outside the compiled function and pass in the Python number: the number of steps of a loop must be known"
    yield from say("number-outside", text, situation=situation)


def slices(situation: Situation) -> Iterator[Advice]:
    """`x[:n]` with a tensor `n`: take a Python number from outside, or capture it."""
    if _loop_bound(situation):
        bound = next(situation.line.calls("range"), None)
        yield from _outside_number(situation, situation.line.text(bound.args[-1]) if bound is not None and bound.args else "the bound")


def branches(situation: Situation, drop: ast.Call | None = None) -> Iterator[Advice]:
    """`if tensor:` and `while tensor:`: choose between values instead of between statements, or keep the choice out of the graph."""
    if not situation.editable:
        yield from _library_branch(situation)
        return
    condition = _condition(situation)
    statement = situation.line.statement
    if condition is None or _reduces_in_python(situation) or _draws(situation):
        yield from _hidden_condition(situation)
        return
    text = _without(situation, condition, drop)
    if isinstance(statement, ast.While):
        yield from _loops(situation, text)
    elif isinstance(statement, ast.Assert):
        yield from _asserts(situation, statement, text)
    elif (choice := _if_expression(situation)) is not None:
        values = f"torch.where({text}, {situation.line.text(choice.body)}, {situation.line.text(choice.orelse)})"
        yield from rewrite(situation, "if-where", situation.line.replaced(choice, values), "Compute both values and choose on the device")
    else:
        yield from _ifs(situation, text)


def _ifs(situation: Situation, condition: str) -> Iterator[Advice]:
    flag = quoted(condition, 60)
    text = f"Compute both sides and choose on the device: for each tensor that the branch of {flag} sets, write `torch.where` instead"
    yield from rewrite(situation, "if-where", f"torch.where({condition}, ...)", text)
    text = f"If the branch of {flag} only raises an error: check on the device, the error then comes asynchronously"
    yield from rewrite(situation, "if-check", f"torch._assert_async(torch.logical_not({condition}), ...)", text)
    text = "If the two sides are dear, let the graph hold both (no side effects inside, results of equal shape and dtype)"
    yield from rewrite(situation, "if-cond", f"torch.cond({condition}, ...)", text)


def _library_branch(situation: Situation) -> Iterator[Advice]:
    where = situation.where or "a library"
    text = f"The branch is in {where}, which you cannot edit: give arguments that avoid it, or call {line_name(situation)} outside"
    yield from say("if-library", text, situation=situation)


def _loops(situation: Situation, condition: str) -> Iterator[Advice]:
    text = f"Compile the body of the loop as a function of its own and keep `while {condition}:` in plain Python"
    yield from say("while-body", text, situation=situation)
    text = "Or put the whole loop into the graph (a prototype of torch; body and condition take and return tensors of fixed shape)"
    yield from rewrite(situation, "while-op", "torch._higher_order_ops.while_loop(...)", text)


def _asserts(situation: Situation, statement: ast.Assert, condition: str) -> Iterator[Advice]:
    """Dynamo turns `assert tensor, "constant"` into a check in the graph; a `not` or a computed message prevents that."""
    message = "" if statement.msg is None else f", {_constant_message(situation, statement.msg)}"
    text = "Give the assertion a plain tensor and a constant message: it then becomes a check in the graph"
    yield from rewrite(situation, "assert-constant", f"assert {condition}{message}", text)


def _hidden_condition(situation: Situation) -> Iterator[Advice]:
    """The line has no condition that we can name: a generator, a library, or a line that was not recorded."""
    if _draws(situation):
        yield from random_numbers(situation)
        return
    for call in situation.line.calls("any", "all"):
        name = dotted(call.func)
        text = f"Reduce the tensor on the device (`(x > 0).{name}()`) and choose with `torch.where`, not with Python's `{name}`"
        yield from say("any-tensor", text, situation=situation)
        return
    text = f"{_subject(situation)} decides a Python branch by the value of a tensor: choose with `torch.where`, or do it outside"
    yield from say("if-hidden", text, situation=situation)


def random_numbers(situation: Situation) -> Iterator[Advice]:
    """`random.random()` and NumPy's: draw on the device, or draw outside and pass the value in."""
    yield from say(
        "random-torch",
        "Draw with torch inside compiled code (`torch.rand(())`, `torch.randint(low, high, ())`) and choose with `torch.where`; "
        "or draw outside and pass the value in",
        situation=situation,
    )


def data_operators(situation: Situation) -> Iterator[Advice]:
    """Operators that return a Python value (`GB0033`): use the one that returns a tensor."""
    line = situation.line
    for name, new in (("torch.equal", "({0} == {1}).all()"), ("torch.allclose", "torch.isclose({0}, {1}).all()")):
        for call in line.calls(name):
            if len(call.args) >= 2 and situation.editable:
                yield from _comparison(situation, call, new.format(line.text(call.args[0]), line.text(call.args[1])))
                return
    for node in line.nodes:
        if isinstance(node, ast.Call) and (dotted(node.func) or "").startswith("math.") and node.args:
            after = line.replaced(node.func, f"torch.{(dotted(node.func) or '')[5:]}")
            yield from rewrite(situation, "item-math", after, "Compute on the tensor with torch instead of math")
            return
    if _draws(situation):
        yield from random_numbers(situation)
        return
    yield from lists(situation)
    yield from option(
        situation,
        "item-capture",
        "capture_scalar_outputs",
        " = True",
        f"Let Dynamo take the number that {line_name(situation)} reads into the graph as a symbol",
    )


def _comparison(situation: Situation, call: ast.Call, new: str) -> Iterator[Advice]:
    statement = situation.line.statement
    if isinstance(statement, ast.If):
        text = "Compare on the device and choose with `torch.where`"
        yield from rewrite(situation, "equal-where", f"torch.where({new}, ...)", text)
    else:
        yield from rewrite(
            situation, "equal-tensor", situation.line.replaced(call, new), "Compare on the device: the result stays a tensor"
        )


def lists(situation: Situation) -> Iterator[Advice]:
    """`t.tolist()`: the elements as 0-d tensors."""
    call = next(situation.line.methods("tolist"), None)
    if call is None or not isinstance(call.func, ast.Attribute):
        return
    after = situation.line.replaced(call, f"{situation.line.text(call.func.value)}.unbind()")
    yield from rewrite(situation, "tolist-unbind", after, "Take the elements as 0-d tensors instead of Python numbers")


def data_shapes(situation: Situation) -> Iterator[Advice]:
    """Operators whose output size depends on values: capture the size as a symbol, or compute with a fixed size."""
    yield from option(
        situation,
        "shape-capture",
        "capture_dynamic_output_shape_ops",
        " = True",
        f"Keep {line_name(situation)} and let the graph carry the unknown size of its result",
    )
    yield from _fixed_size(situation)
    if not situation.editable:
        text = f"The operator is in {situation.where}, which you cannot edit"
        yield from say("shape-library", f"{text}: call {line_name(situation)} outside the compiled function", situation=situation)


def _fixed_size(situation: Situation) -> Iterator[Advice]:
    line = situation.line
    for call in line.calls("torch.nonzero"):
        after = line.replaced(call, f"torch.nonzero_static({', '.join(line.text(argument) for argument in call.args)}, size=...)")
        yield from rewrite(situation, "nonzero-static", after, "If you know how many there are at most, fix the size (unused rows are -1)")
        return
    for call in line.calls("torch.masked_select"):
        if len(call.args) == 2:
            after = line.replaced(call, f"torch.where({line.text(call.args[1])}, {line.text(call.args[0])}, 0)")
            yield from rewrite(situation, "mask-where", after, "If a sum follows: keep the shape and set the rest to zero")
            return
    for call in line.methods("repeat_interleave"):
        after = line.replaced(call, f"{line.text(call)[:-1]}, output_size=...)")
        yield from rewrite(situation, "repeat-size", after, "If you know the length of the result, say it")
        return
    for node in line.nodes:
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Compare) and isinstance(node.ctx, ast.Load):
            after = line.replaced(node, f"torch.where({line.text(node.slice)}, {line.text(node.value)}, 0)")
            yield from rewrite(situation, "mask-where", after, "If a sum follows: keep the shape and set the rest to zero")
            return


def one_hot(situation: Situation) -> Iterator[Advice]:
    """`one_hot(x)` without `num_classes` reads the largest label."""
    call = next(situation.line.methods("one_hot"), None)
    if call is None:
        yield from say("one-hot-classes", "Pass `num_classes=` to `one_hot`", situation=situation)
        return
    after = situation.line.replaced(call, f"{situation.line.text(call)[:-1]}, num_classes=...)")
    yield from rewrite(situation, "one-hot-classes", after, "Say the number of classes, so that it is not read from the data")


def tensor_index(situation: Situation) -> Iterator[Advice]:
    """A Python list indexed by a tensor."""
    found = (node for node in situation.line.nodes if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Name))
    node = next(found, None)
    if node is None:
        return
    base, index = situation.line.text(node.value), situation.line.text(node.slice)
    after = situation.line.replaced(node, f"torch.as_tensor({base})[{index}]")
    yield from rewrite(
        situation, "list-to-tensor", after, f"Make `{base}` a tensor (for tensors `torch.stack`), then a tensor can index it"
    )


def guards_on_data(situation: Situation) -> Iterator[Advice]:
    """A symbol of unknown value had to be decided (after `capture_scalar_outputs`): tell torch what holds, or stay with tensors."""
    yield from say(
        "unbacked-check",
        f"{_subject(situation)} must decide something by a number that is only known at run time: keep it a tensor, "
        "or state what always holds with `torch._check(...)` just before",
        situation=situation,
    )


def _scalar_read(situation: Situation) -> ast.Call | None:
    line = situation.line
    method = next(line.methods("item"), None)
    if method is not None and not method.args:
        return method
    return next((call for call in line.calls(*_CASTS) if len(call.args) == 1 and not isinstance(call.args[0], ast.Constant)), None)


def _is_cast(read: ast.Call, name: str) -> bool:
    return isinstance(read.func, ast.Name) and read.func.id == name


def _tensor_of(situation: Situation, read: ast.Call) -> str:
    inner = read.func.value if isinstance(read.func, ast.Attribute) else read.args[0]
    text = situation.line.text(inner)
    simple = isinstance(inner, ast.Name | ast.Attribute | ast.Call | ast.Subscript)
    return text if simple else f"({text})"


def _dropped(read: ast.Call) -> str:
    return "`.item()`" if isinstance(read.func, ast.Attribute) else f"`{dotted(read.func)}(...)`"


def _may_stay_tensor(read: ast.Call, use: ast.AST | None) -> bool:
    if _is_cast(read, "int"):
        return False
    return isinstance(use, ast.BinOp | ast.Assign | ast.Return | ast.Dict | ast.ListComp | ast.GeneratorExp | ast.List | ast.Tuple)


def _only_a_number(situation: Situation, use: ast.AST | None) -> bool:
    """Whether capturing the scalar cures this use: not when it decides a branch, a loop or an order, or picks from what may be a list."""
    if _condition(situation) is not None or _loop_bound(situation):
        return False
    line = situation.line
    if any(True for _ in line.calls("bool", "print", *_SYMBOLIC_ONLY)):
        return False
    return not isinstance(use, ast.Subscript)


def _condition(situation: Situation) -> ast.expr | None:
    statement = situation.line.statement
    if isinstance(statement, ast.If | ast.While | ast.Assert):
        return statement.test
    choice = _if_expression(situation)
    if choice is not None:
        return choice.test
    return None


def _if_expression(situation: Situation) -> ast.IfExp | None:
    return next((node for node in situation.line.nodes if isinstance(node, ast.IfExp)), None)


def _loop_bound(situation: Situation) -> bool:
    return isinstance(situation.line.statement, ast.For) or any(True for _ in situation.line.calls("range"))


def _draws(situation: Situation) -> bool:
    """Whether the line draws a random number with Python or NumPy."""
    return re.search(r"(?<!torch\.)\brandom\.\w", situation.line.code) is not None


def _reduces_in_python(situation: Situation) -> bool:
    """Whether the line asks Python's `any` or `all`, which look at one element after the other."""
    return next(situation.line.calls("any", "all"), None) is not None


def _without(situation: Situation, condition: ast.expr, drop: ast.Call | None) -> str:
    """The condition as a tensor expression: without `.item()`, `not` and `and` written as torch functions."""
    text = _tensor_condition(situation, condition)
    if drop is not None:
        text = text.replace(situation.line.text(drop), _tensor_of(situation, drop))
    return text


def _tensor_condition(situation: Situation, node: ast.expr) -> str:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return f"torch.logical_not({_tensor_condition(situation, node.operand)})"
    if isinstance(node, ast.BoolOp):
        name = "logical_and" if isinstance(node.op, ast.And) else "logical_or"
        parts = [_tensor_condition(situation, value) for value in node.values]
        text = parts[0]
        for part in parts[1:]:
            text = f"torch.{name}({text}, {part})"
        return text
    return situation.line.text(node)


def _constant_message(situation: Situation, message: ast.expr) -> str:
    return situation.line.text(message) if isinstance(message, ast.Constant) else '"..."'


def _subject(situation: Situation) -> str:
    if situation.where:
        return f"{situation.where}, reached from {line_name(situation)},"
    return line_name(situation) if situation.line.code else "This line"


SCALARS: dict[str, tuple[Rule, ...]] = {
    "GB0124": (slices, scalar_reads),
    "GB0170": (branches,),
    "GB0035": (branches,),
    "GB0034": (branches,),
    "GB0033": (data_operators,),
    "GB0036": (data_shapes,),
    "GB0037": (data_shapes,),
    "GB0070": (tensor_index,),
    "GB0109": (lists,),
    "GB0246": (one_hot,),
    "GB7596": (tensor_index,),
    "GB2582": (branches,),
}
