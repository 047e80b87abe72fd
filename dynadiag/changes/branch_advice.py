"""Advice for Python branches and assertions on the value of a tensor."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from dynadiag.changes import legality
from dynadiag.changes.branch import (
    asks_in_turn,
    gives_same_values,
    negated_text,
    own_branch,
    read_branch,
    say_kept_elsewhere,
    say_replaced,
    selected_rows,
    shows_same_values,
    why_not_asked,
    why_not_computed,
    why_not_differentiated,
    why_not_new,
    with_python_part,
)
from dynadiag.changes.break_context import CHANGES, BreakContext, Said, Withheld, quoted, rewrite, withhold
from dynadiag.changes.condition import DRAWN, condition_of, if_expression, split_python_part, tensor_condition, tensor_test
from dynadiag.changes.message import LOGGER, LOGGER_METHODS
from dynadiag.errors import EditError
from dynadiag.model.report import Advice
from dynadiag.source.effects import blocks_around, breaks_beside, catches
from dynadiag.source.line import dotted, parse_line
from dynadiag.source.memory import kept_elsewhere
from dynadiag.source.place import Place
from dynadiag.source.torch_names import is_torch_function
from dynadiag.source.tree import nodes_in
from dynadiag.source.uses import draws, is_item

_BOTH = "both values are computed, and both get gradients, of zeros where one is not chosen"
_NO_CHOICE = (
    "the value of a tensor decides what Python does here; `torch.where` computes both values, which must then have one shape and both get "
    "gradients: the recording does not show that the results would be the same; where `dynadiag fix` can rewrite the branch, it compares "
    "them"
)
_WHOLE = "and a break in a loop, `try` or `with` leaves the whole function eager"
_UNKNOWN = "the value of a tensor decides what Python does here, and a graph cannot choose between statements"


def branches(context: BreakContext, drop: ast.Call | None = None) -> Iterator[Said]:
    """`if tensor:`, `assert tensor`: choose between values where the function shows that both have one shape; `while` is left as it is."""
    if (why := why_no_check(context)) is not None:
        yield from withhold(why)
        return
    found = tuple(_choices(context, drop)) if context.editable else ()
    advice = tuple(item for item in found if isinstance(item, Advice))
    yield from advice or found or withhold(_reason(context))


def why_no_check(context: BreakContext) -> str | None:
    """Why no check in a graph takes the place of this `assert` or `raise`: the program may catch its exception, or it may come."""
    raised = _raised(context)
    if raised is None:
        return None
    if any(catches(caller, raised) for caller in context.callers):
        return f"the code on the way here may catch `{raised}`, and a check in a graph raises another exception, later"
    did = _was_raised(context)
    run = f"this run raised `{raised}` here" if did else f"the recording does not show that `{raised}` was not raised here"
    return None if did is False else f"{run}, and a check in a graph raises another exception, later"


def remains(context: BreakContext) -> str | None:
    """Why one line is not enough: another line in the same loop or `try`, for which nothing is advised, keeps the whole function eager."""
    place = context.place
    if place is None or not context.editable:
        return None
    for other in breaks_beside(place):
        there = replace(place, row=other.lineno)
        line = parse_line(there.rows[other.lineno - 1], place.imports)
        decision = isinstance(other, ast.If | ast.While | ast.Assert)
        if not (decision and any(isinstance(branch, Advice) for branch in branches(replace(context, line=line, place=there)))):
            return f"{quoted(line.code)} beside it breaks as well, {_WHOLE}"
    return f"another line of the same block leads to a break as well, {_WHOLE}" if _led_to_others(context, place) else None


def _led_to_others(context: BreakContext, place: Place) -> bool:
    """Whether another recorded line of the blocks around this one broke, or called what broke."""
    line = None if context.torch_frame is None else context.torch_frame.line
    rows = {row for block in blocks_around(place) for row in range(getattr(block, "lineno", 0), (getattr(block, "end_lineno", 0) or 0) + 1)}
    own = place.statement()
    rows -= set(range(place.row, (place.row if own is None else own.end_lineno or place.row) + 1))
    return line is not None and any(row + line - place.row in context.on_the_way for row in rows)


def _raised(context: BreakContext) -> str | None:
    """The exception that the statement raises when its condition says so."""
    statement = context.line.statement if context.place is None else context.place.statement()
    if isinstance(statement, ast.Assert):
        return "AssertionError"
    first = statement.body[0] if isinstance(statement, ast.If) else None
    raised = first.exc if isinstance(first, ast.Raise) else None
    return dotted(raised.func if isinstance(raised, ast.Call) else raised) if raised is not None else None


def _was_raised(context: BreakContext) -> bool | None:
    """Whether the statement raised in this run; None: what an inlined function, or one that ran eager, raises is not recorded."""
    place = context.place
    line = None if context.torch_frame is None else context.torch_frame.line
    own = None if place is None else place.statement()
    if place is None or own is None or line is None or not context.itself or blocks_around(place):
        return None
    return any(row + line - place.row in context.raised for row in range(own.lineno, (own.end_lineno or own.lineno) + 1))


def _choices(context: BreakContext, drop: ast.Call | None) -> Iterator[Said]:
    line, place = context.line, context.place
    test = condition_of(line)
    yield from _left_out(context)
    python, decides = (None, test) if test is None else split_python_part(test)
    text = None if decides is None else tensor_condition(line, decides, drop)
    if text is None or isinstance(line.statement, ast.While):
        return
    if isinstance(line.statement, ast.Assert):
        if python is None:
            message = "" if line.statement.msg is None else f", {_constant(context, line.statement.msg)}"
            check = "it then becomes a check in the graph, which raises RuntimeError, not AssertionError"
            said = f"Give the assertion a plain tensor and a constant message: {check}"
            yield from rewrite(context, "assert-constant", f"assert {text}{message}", said)
    elif place is not None and (choice := if_expression(line)) is not None:
        if python is None:
            yield from _expression(context, place, choice, text, drop)
    elif place is not None:
        with suppress(EditError):  # what it does is no choice between values: `_reason` says what it is
            yield from _statement(context, place, None if drop is None else place.at(line, drop))


def _left_out(context: BreakContext) -> Iterator[Advice]:
    """A branch that only prints, logs or warns, whose condition only reads tensors: compiled calls can leave out both."""
    line, place = context.line, context.place
    whole = None if place is None else place.statement()
    test = line.statement.test if isinstance(line.statement, ast.If) and not line.code.startswith("elif") else None
    if place is None or test is None or not isinstance(whole, ast.If) or whole.orelse or not all(map(_only_says, whole.body)):
        return
    changes = any(isinstance(node, ast.NamedExpr | ast.Await) or _may_change(place, node) for node in nodes_in(whole.test))
    if not changes and context.options.known("compiler", "is_compiling") != "no":
        asked = f"({line.text(test)})" if isinstance(test, ast.BoolOp | ast.IfExp) else line.text(test)
        after = line.replaced(test, f"not torch.compiler.is_compiling() and {asked}")
        text = f"Exclude the branch, which only prints, logs or warns, from compiled code: {CHANGES}"
        yield from rewrite(context, "branch-guard", after, text, options=("torch.compiler.is_compiling",))


def _only_says(node: ast.stmt) -> bool:
    call = node.value if isinstance(node, ast.Expr) else None
    name = (dotted(call.func) or "") if isinstance(call, ast.Call) else ""
    owner, _, method = name.rpartition(".")
    return name in ("print", "warnings.warn") or (method in LOGGER_METHODS and LOGGER.search(owner) is not None)


def _may_change(place: Place, node: ast.AST) -> bool:
    """Whether the node is a call of what may do more than compute."""
    if not isinstance(node, ast.Call):
        return False
    name = dotted(node.func) or ""
    known = is_torch_function(name) or name.partition(".")[0] == "math" or name in ("abs", "bool", "float", "int", "len", "max", "min")
    of_tensor = isinstance(node.func, ast.Attribute) and (
        place.is_tensor(node.func.value) or (isinstance(node.func.value, ast.Compare) and node.func.attr in ("any", "all"))
    )
    return name.endswith("_") or not (known or of_tensor)


def _expression(context: BreakContext, place: Place, choice: ast.IfExp, condition: str, drop: ast.Call | None) -> Iterator[Said]:
    line, node = context.line, place.at(context.line, choice)
    if not isinstance(node, ast.IfExp) or not place.asks_single(node.test) or asks_in_turn(node.test):
        return
    values = (node.body, node.orelse)
    numbers = place.float32 and all(isinstance(value, ast.Constant) and type(value.value) is float for value in values)
    if (place.floating and gives_same_values(place, [values])) or (numbers and place.tensor_serves(node)):
        whys = (
            say_kept_elsewhere(place, kept_elsewhere(place, values, (node,))),
            _in_vain(why_not_asked(node.test, tensor_test(choice.test, drop) or choice.test)),
            *(_in_vain(legality.why_not_computed(value, gradients=not place.no_gradient)) for value in values),
            legality.why_not_differentiated(place, node.test, (node.body,), (node.orelse,)),
        )
        if (why := next(filter(None, whys), None)) is not None:
            yield from withhold(why)
            return
        after = line.replaced(choice, f"torch.where({condition}, {line.text(choice.body)}, {line.text(choice.orelse)})")
        yield from rewrite(context, "if-where", after, f"Compute both values and select on the device ({_BOTH})")


def _in_vain(why: str | None) -> str | None:
    return None if why is None else f"both sides would be computed, and {why}"


def _statement(context: BreakContext, place: Place, read: ast.expr | None) -> Iterator[Said]:
    """The `if` on the row as rows without one. Raises EditError where it is no choice between values."""
    drop = read if isinstance(read, ast.Call) else None
    statement = own_branch(place)
    if len(statement.body) == 1 and isinstance(statement.body[0], ast.Raise) and not statement.orelse:
        yield from _check(context, place, statement, statement.body[0], drop)
        return
    branch = read_branch(place, drop)
    writes = any(side.writes is not None for side in branch.sides)
    if not writes and not shows_same_values(branch):
        return
    computed = _in_vain(why_not_computed(branch, gradients=not place.no_gradient))
    if (why := why_not_new(branch) or computed or why_not_differentiated(branch)) is not None:
        yield Withheld(why)
        return
    slug, text = "if-where", f"Always compute the value and select on the device ({_BOTH})"
    if branch.then.returns is not None:
        slug, text = "if-return-where", f"Compute both results and select on the device ({_BOTH})"
    before, after = place.written(statement, branch.last), "\n".join(with_python_part(branch, selected_rows(branch)))
    yield Advice(slug=slug, text=f"{text}{say_replaced(branch)}", before=before, after=after)


def _check(context: BreakContext, place: Place, statement: ast.If, raised: ast.Raise, drop: ast.Call | None) -> Iterator[Advice]:
    """`if tensor: raise E("text")` as a check in the graph."""
    message, test = _message(place, raised), tensor_test(statement.test, drop)
    if message is None or test is None or split_python_part(statement.test)[0] is not None:
        return
    also = "" if context.returns else f", also where `{place.node.name}` is called uncompiled"
    text = f"Check on the device; the error then comes later, as a RuntimeError{also}"
    after = f"torch._assert_async({negated_text(place, statement.test, test)}, {message})"
    yield Advice(slug="if-check", text=text, before=place.written(statement, statement), after=after)


def _message(place: Place, node: ast.Raise) -> str | None:
    """The text of `raise E("text")`, of an f-string what is constant in it."""
    raised = node.exc
    if not isinstance(raised, ast.Call) or len(raised.args) != 1 or raised.keywords:
        return None
    said = raised.args[0]
    if isinstance(said, ast.JoinedStr):
        words = " ".join(
            " ".join(str(expression.value) for expression in said.values if isinstance(expression, ast.Constant)).split()
        ).rstrip(" :=,(")
        return json.dumps(words) if re.search(r"\w{3}", words) else None
    return place.text(said) if isinstance(said, ast.Constant) and isinstance(said.value, str) else None


def _constant(context: BreakContext, message: ast.expr) -> str:
    return context.line.text(message) if isinstance(message, ast.Constant) else '"assertion failed"'


def _reason(context: BreakContext) -> str:
    statement = context.line.statement
    if draws(context.line):
        return DRAWN
    if isinstance(statement, ast.While):
        return "the values of a tensor decide how often the loop runs, which no graph can do"
    block: Sequence[ast.stmt] = ()
    if context.place is not None and isinstance(whole := context.place.statement(), ast.If):
        block = (*whole.body, *whole.orelse)
    inside = list(nodes_in(*block))
    if any(isinstance(descendant, ast.Break | ast.Continue) for descendant in inside):
        return "the branch leaves the loop or skips an iteration, which no choice between values can replace"
    if any(isinstance(part, ast.Return) for part in inside):
        return "the branch returns from the function, and a graph cannot leave out what comes after it"
    if block and all(isinstance(item, ast.Expr) for item in block):
        called = dotted(block[0].value.func) if isinstance(block[0], ast.Expr) and isinstance(block[0].value, ast.Call) else None
        return f"the branch makes calls ({f'`{called}`' if called else 'in its first line'}), which a graph cannot make conditionally"
    if (block and all(_may_be_chosen(element) for element in block)) or if_expression(context.line) is not None:
        return _NO_CHOICE
    return _UNKNOWN


def _may_be_chosen(statement: ast.stmt) -> bool:
    """Whether the statement gives a name what may be a tensor: no constant such as `None`, and no number read out of one."""
    if not isinstance(statement, ast.Assign | ast.AugAssign):
        return False
    return not isinstance(statement.value, ast.Constant) and not is_item(statement.value)
