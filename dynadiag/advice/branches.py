"""Advice for Python branches, loops and assertions on the value of a tensor."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from dynadiag.advice.branch_bodies import BOTH, by_body, negated
from dynadiag.advice.reads import is_item, scalar_calls
from dynadiag.advice.situation import Situation, line_name, quoted, rewrite, say, sketch
from dynadiag.advice.source import SourceLine, dotted
from dynadiag.advice.uses import number_needed, takes_tensors
from dynadiag.model.report import Advice

# Methods and functions whose result is a tensor of truth values, or one number of which a comparison makes one.
_TRUTHS = frozenset(
    {"any", "all", "isnan", "isinf", "isfinite", "logical_and", "logical_or", "logical_not", "logical_xor", "eq", "ne", "isin"}
)
_NUMBERS = frozenset(
    (
        "sum",
        "mean",
        "max",
        "min",
        "amax",
        "amin",
        "abs",
        "norm",
        "prod",
        "std",
        "var",
        "item",
        "argmax",
        "argmin",
        "median",
        "count_nonzero",
    )
)


def branches(situation: Situation, drop: ast.Call | None = None) -> Iterator[Advice]:
    """`if tensor:` and `while tensor:`: choose between values instead of between statements, or keep the choice out of the graph."""
    if not situation.editable:
        return
    test = condition_of(situation.line)
    if test is None or _reduces_in_python(situation) or draws(situation):
        yield from _hidden_condition(situation)
        return
    text = tensor_condition(situation.line, test, drop)
    if text is None:
        yield from _mixed(situation, test)
    elif isinstance(situation.line.statement, ast.While):
        yield from _loops(situation, situation.line.text(test))
    elif isinstance(situation.line.statement, ast.Assert):
        yield from _asserts(situation, situation.line.statement, text)
    elif (choice := if_expression(situation.line)) is not None:
        values = f"torch.where({text}, {situation.line.text(choice.body)}, {situation.line.text(choice.orelse)})"
        said = f"Compute both values and choose on the device ({BOTH}; write a plain number as `torch.tensor(...)` if both are numbers)"
        yield from rewrite(situation, "if-where", situation.line.replaced(choice, values), said)
    else:
        yield from _ifs(situation, text)


def _ifs(situation: Situation, condition: str) -> Iterator[Advice]:
    """A whole `if` statement: written out when its branch is on the same line, else in words."""
    whole = _one_line(situation, condition)
    if whole is not None:
        yield from whole
        return
    if situation.block is not None and isinstance(situation.block.statements[0], ast.If):
        yield from by_body(situation, situation.block, situation.block.statements[0], condition)
        return
    flag = quoted(condition, 60)
    text = (
        f"Compute both sides and choose on the device: for each tensor `y` that the branch sets, write "
        f"{quoted(f'y = torch.where({condition}, <value in the branch>, y)', 120)} instead of the `if` ({BOTH})"
    )
    yield from sketch(situation, "if-where", text)
    text = (
        f"If the branch of {flag} only raises an error: check on the device with "
        f"{quoted(f'torch._assert_async({negated(condition)}, <message>)', 120)}; the error then comes later"
    )
    yield from sketch(situation, "if-check", text)
    yield from sketch(
        situation,
        "if-outside",
        f"If the branch of {flag} prints, saves, stops or leaves a loop: return the tensor and decide after the compiled call",
    )


def _one_line(situation: Situation, condition: str) -> Iterator[Advice] | None:
    """The whole line written anew when its branch stands on it: `if c: x = e`, `if c: x += e`, `if c: raise E("text")`."""
    statement, line = situation.line.statement, situation.line
    if not isinstance(statement, ast.If) or statement.orelse or line.code.startswith("elif"):
        return None
    body = statement.body
    if body and all(_sets_a_name(node) for node in body):
        rows = "\n".join(_chosen(line, node, condition) for node in body)
        text = f"Compute the value in any case and choose on the device ({BOTH}; the name must have a tensor before the line)"
        if any(isinstance(node, ast.AugAssign) for node in body):
            text += "; the old line changed the tensor in place, this one makes a new tensor"
        return rewrite(situation, "if-where", rows, text)
    if len(body) == 1 and isinstance(body[0], ast.Raise) and (message := _message(line, body[0])) is not None:
        after = f"torch._assert_async({negated(condition)}, {message})"
        return rewrite(situation, "if-check", after, "Check on the device; the error then comes later, as a RuntimeError")
    return None


def _sets_a_name(node: ast.stmt) -> bool:
    if isinstance(node, ast.AugAssign):
        return isinstance(node.target, ast.Name) and type(node.op) in _SIGNS
    return isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name)


def _chosen(line: SourceLine, node: ast.stmt, condition: str) -> str:
    if isinstance(node, ast.AugAssign):
        name = line.text(node.target)
        value = line.text(node.value)
        value = value if isinstance(node.value, ast.Name | ast.Constant | ast.Call | ast.Attribute | ast.Subscript) else f"({value})"
        return f"{name} = torch.where({condition}, {name} {_SIGNS[type(node.op)]} {value}, {name})"
    assert isinstance(node, ast.Assign)
    name = line.text(node.targets[0])
    return f"{name} = torch.where({condition}, {line.text(node.value)}, {name})"


def _message(line: SourceLine, node: ast.Raise) -> str | None:
    """The constant text of `raise E("text")`."""
    raised = node.exc
    if isinstance(raised, ast.Call) and len(raised.args) == 1 and isinstance(raised.args[0], ast.Constant) and not raised.keywords:
        return line.text(raised.args[0]) if isinstance(raised.args[0].value, str) else None
    return None


def _mixed(situation: Situation, test: ast.expr) -> Iterator[Advice]:
    """A condition that also asks plain Python values, or cannot be written with tensors."""
    members = [
        node for node in ast.walk(test) if isinstance(node, ast.Compare) and any(isinstance(op, ast.In | ast.NotIn) for op in node.ops)
    ]
    if any(reads_a_tensor(node.left) for node in members) or (members and scalar_calls(situation.line)):
        text = (
            f"{quoted(situation.line.text(test), 60)} looks a tensor's value up in a Python container: return the tensor, and do this `if` "
            "with its body after the compiled call"
        )
        yield from sketch(situation, "member-outside", text)
        return
    text = (
        f"Keep in the Python condition {quoted(situation.line.text(test), 60)} only what is no tensor, and choose by the part that reads "
        f"a tensor with `torch.where` inside ({BOTH}); or decide outside the compiled function and pass the answer in"
    )
    yield from sketch(situation, "if-split", text)


def _loops(situation: Situation, condition: str) -> Iterator[Advice]:
    text = f"Compile the body of the loop as a function of its own and keep `while {condition}:` in plain Python"
    yield from say("while-body", text)
    text = (
        "Or put the whole loop into the graph with `torch._higher_order_ops.while_loop(<condition>, <body>, (<tensors>,))` "
        "(a prototype of torch; body and condition take and return tensors of fixed shape)"
    )
    yield from sketch(situation, "while-op", text)


def _asserts(situation: Situation, statement: ast.Assert, condition: str) -> Iterator[Advice]:
    """Dynamo turns `assert tensor, "constant"` into a check in the graph; a `not` or a computed message prevents that."""
    message = "" if statement.msg is None else f", {_constant_message(situation, statement.msg)}"
    text = "Give the assertion a plain tensor and a constant message: it then becomes a check in the graph"
    yield from rewrite(situation, "assert-constant", f"assert {condition}{message}", text)


def _hidden_condition(situation: Situation) -> Iterator[Advice]:
    """The line has no condition that we can name: a generator, a library, or a line that was not recorded."""
    if draws(situation):
        yield from random_numbers(situation)
        return
    for call in situation.line.calls("any", "all"):
        name = dotted(call.func)
        text = f"Reduce the tensor on the device (`(x > 0).{name}()`) and choose with `torch.where`, not with Python's `{name}`"
        yield from say("any-tensor", text)
        return
    text = f"{subject(situation)} decides a Python branch by the value of a tensor: choose with `torch.where`, or do it outside"
    yield from say("if-hidden", text)


def random_numbers(situation: Situation) -> Iterator[Advice]:
    """`random.random()` and NumPy's: draw on the device, or outside where a Python number is needed (`torch.roll`, a slice).

    Passed in, a Python number is guarded by its value, which a flag or a tensor is not for each new one.
    """
    if (used := number_needed(situation.block)) is not None:
        yield from say("random-outside", f"Draw before the compiled call and pass the number in: {quoted(used)} needs a Python number")
        return
    passed = "decide outside and pass in the answer, True or False"
    if condition_of(situation.line) is None:
        passed = "draw outside and pass the number in as a 0-d tensor"
    yield from say(
        "random-torch",
        "Draw with torch inside compiled code (`torch.rand(())`, `torch.randint(low, high, ())`) and choose with `torch.where`: these are "
        f"other numbers; or {passed}",
    )


def condition_of(line: SourceLine) -> ast.expr | None:
    """The condition that the line decides by, or None."""
    statement = line.statement
    if isinstance(statement, ast.If | ast.While | ast.Assert):
        return statement.test
    choice = if_expression(line)
    return None if choice is None else choice.test


def if_expression(line: SourceLine) -> ast.IfExp | None:
    """The `a if c else b` on the line, or None."""
    return next((node for node in line.nodes if isinstance(node, ast.IfExp)), None)


def only_chosen(line: SourceLine, test: ast.expr, read: ast.Call) -> bool:
    """Whether the read is one side of `a if c else b` and no part of what decides: `c` may be a plain bool (`torch.is_tensor(x)`)."""
    return if_expression(line) is not None and all(one is not read for one in ast.walk(test))


def draws(situation: Situation) -> bool:
    """Whether the line draws a random number with Python or NumPy."""
    return re.search(r"(?<!torch\.)\brandom\.\w", situation.line.code) is not None


def _reduces_in_python(situation: Situation) -> bool:
    """Whether the line asks Python's `any` or `all`, which look at one element after the other."""
    return next(situation.line.calls("any", "all"), None) is not None


def tensor_condition(line: SourceLine, node: ast.expr, drop: ast.Call | None = None) -> str | None:
    """The condition as a tensor of truth values: without `.item()`, `not` and `and` written as torch functions; None if it cannot be.

    It cannot where a function that wants a number (Python's, NumPy's) stands around a read: without the read it gives no tensor.
    """
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        inner = tensor_condition(line, node.operand, drop)
        return None if inner is None else negated(inner)
    if isinstance(node, ast.BoolOp):
        parts = [tensor_condition(line, value, drop) if reads_a_tensor(value) else None for value in node.values]
        return _joined("logical_and" if isinstance(node.op, ast.And) else "logical_or", parts)
    if isinstance(node, ast.Compare):
        return _compared(line, node, drop)
    if _number_for_python(line, node, drop):
        return None
    text = without(line, node, drop)
    return text if _is_truth(node) else boolean(text)


def boolean(text: str) -> str:
    """A tensor of numbers as the truth value that Python's `if` would take."""
    return f"({text}) != 0" if re.search(r"[^\w.()\[\]]", text) else f"{text} != 0"


def _compared(line: SourceLine, node: ast.Compare, drop: ast.Call | None) -> str | None:
    if len(node.ops) == 1 and isinstance(node.ops[0], ast.In | ast.NotIn):
        return _member(line, node, drop)
    if _number_for_python(line, node, drop) or not all(
        isinstance(op, ast.Eq | ast.NotEq | ast.Lt | ast.LtE | ast.Gt | ast.GtE) for op in node.ops
    ):
        return None
    if len(node.ops) == 1:
        return without(line, node, drop)
    sides = [without(line, side, drop) for side in (node.left, *node.comparators)]
    parts = [f"{one} {_COMPARES[type(op)]} {other}" for one, op, other in zip(sides, node.ops, sides[1:], strict=False)]
    return _joined("logical_and", parts)


def _member(line: SourceLine, node: ast.Compare, drop: ast.Call | None) -> str | None:
    """`t in [1, 2]` with a plain list of constants."""
    values = node.comparators[0]
    if not isinstance(values, ast.List | ast.Tuple) or not all(isinstance(one, ast.Constant) for one in values.elts):
        return None
    tensor = without(line, node.left, drop)
    text = f"torch.isin({tensor}, torch.tensor([{', '.join(line.text(one) for one in values.elts)}], device={tensor}.device))"
    return text if isinstance(node.ops[0], ast.In) else f"torch.logical_not({text})"


def _joined(name: str, parts: Sequence[str | None]) -> str | None:
    text = parts[0]
    for part in parts[1:]:
        text = None if text is None or part is None else f"torch.{name}({text}, {part})"
    return text


def without(line: SourceLine, node: ast.expr, drop: ast.Call | None) -> str:
    """The text of the node with the reads of scalars (`.item()`, and the cast `drop`) replaced by their tensors."""
    text = line.text(node)
    for read in ([] if drop is None else [drop]) + [one for one in ast.walk(node) if is_item(one)]:
        text = text.replace(line.text(read), tensor_of(line, read))
    for call in ast.walk(node):
        name = dotted(call.func) or "" if isinstance(call, ast.Call) else ""
        text = text.replace(f"{name}(", f"torch.{name[5:]}(") if _of_math(name) else text
    return text


def _of_math(name: str) -> bool:
    """Whether torch has the function of `math` under the same name, from one number to one number."""
    return name.startswith("math.") and name[5:] in ("isfinite", "isnan", "isinf", "exp", "log", "log2", "log10", "log1p", "sqrt")


def _number_for_python(line: SourceLine, node: ast.expr, drop: ast.Call | None) -> bool:
    """Whether a number that the expression reads goes to a function that is not torch's, which gives no tensor for a tensor."""
    for read in ast.walk(node):
        if read is not drop and not is_item(read):
            continue
        inner: ast.AST = read
        while inner is not node and (parent := line.parent(inner)) is not None:
            given = isinstance(parent, ast.Call) and parent.func is not inner and parent is not drop
            if given and isinstance(parent, ast.Call) and not takes_tensors(parent, inner) and not _of_math(dotted(parent.func) or ""):
                return True
            inner = parent
    return False


def tensor_of(line: SourceLine, read: ast.Call) -> str:
    """The tensor that `t.item()` or `float(t)` reads."""
    inner = read.func.value if isinstance(read.func, ast.Attribute) else read.args[0]
    if is_item(inner):
        return tensor_of(line, inner)
    text = line.text(inner)
    simple = isinstance(inner, ast.Name | ast.Attribute | ast.Call | ast.Subscript)
    return text if simple else f"({text})"


def reads_a_tensor(node: ast.expr) -> bool:
    """Whether the expression surely has the value of a tensor in it: it calls a reduction or a torch function."""
    for one in ast.walk(node):
        if isinstance(one, ast.Call):
            name = dotted(one.func) or ""
            last = one.func.attr if isinstance(one.func, ast.Attribute) else ""
            if name.startswith("torch.") or last in _TRUTHS or last in _NUMBERS:
                return True
    return False


def _is_truth(node: ast.expr) -> bool:
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.BitAnd | ast.BitOr) and _is_truth(node.left) and _is_truth(node.right)
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.Invert) and _is_truth(node.operand)
    if isinstance(node, ast.Call):
        last = node.func.attr if isinstance(node.func, ast.Attribute) else dotted(node.func)
        return last in _TRUTHS or last == "bool"
    return isinstance(node, ast.Compare)


def _constant_message(situation: Situation, message: ast.expr) -> str:
    return situation.line.text(message) if isinstance(message, ast.Constant) else '"assertion failed"'


def subject(situation: Situation) -> str:
    """What to say it of: the place in a library with the line that leads there, or the line."""
    if situation.where:
        return f"{situation.where}, reached from {line_name(situation)},"
    return line_name(situation) if situation.line.code else "This line"


_SIGNS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.MatMult: "@", ast.Pow: "**"}
_COMPARES = {ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}
