"""Advice for Python branches and assertions on the value of a tensor."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from dynadiag.changes.break_context import CHANGES, BreakContext, Said, Withheld, quoted, rewrite, withhold
from dynadiag.changes.condition import DRAWN, condition_of, if_expression, negated, split_python_part, tensor_condition
from dynadiag.changes.legality import why_not_differentiated, why_not_selected
from dynadiag.changes.message import LOGGER, LOGGER_METHODS
from dynadiag.model.report import Advice
from dynadiag.source.effects import blocks_around, breaks_beside, catches, written_later
from dynadiag.source.line import dotted, parse_line
from dynadiag.source.memory import has_other_name, kept_elsewhere, reads_of_this
from dynadiag.source.place import Place
from dynadiag.source.uses import draws, is_item

_BOTH = "both values are computed, and both get gradients, of zeros where one is not chosen"
_SIGNS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*"}
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
    if text is None or decides is None:
        return
    if python is not None:
        yield from _guarded_statement(context, line.text(python), text)
    elif isinstance(line.statement, ast.Assert):
        message = "" if line.statement.msg is None else f", {_constant(context, line.statement.msg)}"
        check = "it then becomes a check in the graph, which raises RuntimeError, not AssertionError"
        said = f"Give the assertion a plain tensor and a constant message: {check}"
        yield from rewrite(context, "assert-constant", f"assert {text}{message}", said)
    elif place is None or isinstance(line.statement, ast.While):
        return
    elif (choice := if_expression(line)) is not None:
        yield from _expression(context, place, choice, text)
    elif isinstance(statement := place.statement(), ast.If) and not line.code.startswith("elif"):
        yield from _statement(context, place, statement, text)


def _left_out(context: BreakContext) -> Iterator[Advice]:
    """A branch that only prints, logs or warns, whose condition only reads tensors: compiled calls can leave out both."""
    line, place = context.line, context.place
    whole = None if place is None else place.statement()
    test = line.statement.test if isinstance(line.statement, ast.If) and not line.code.startswith("elif") else None
    if place is None or test is None or not isinstance(whole, ast.If) or whole.orelse or not all(map(_only_says, whole.body)):
        return
    changes = any(isinstance(node, ast.NamedExpr | ast.Await) or _may_change(place, node) for node in ast.walk(whole.test))
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
    known = name.partition(".")[0] in ("torch", "math") or name in ("abs", "bool", "float", "int", "len", "max", "min")
    of_tensor = isinstance(node.func, ast.Attribute) and (
        place.is_tensor(node.func.value) or (isinstance(node.func.value, ast.Compare) and node.func.attr in ("any", "all"))
    )
    return name.endswith("_") or not (known or of_tensor)


def _expression(context: BreakContext, place: Place, choice: ast.IfExp, condition: str) -> Iterator[Said]:
    line, node = context.line, place.at(context.line, choice)
    if not isinstance(node, ast.IfExp) or not place.is_single(node.test) or _asks_in_turn(node.test):
        return
    numbers = place.float32 and all(
        isinstance(expression, ast.Constant) and type(expression.value) is float for expression in (node.body, node.orelse)
    )
    alike = _chooses_alike(place, node.test) and place.same_shape(node.body, node.orelse)
    if alike or (numbers and place.tensor_serves(node)):
        values = f"torch.where({condition}, {line.text(choice.body)}, {line.text(choice.orelse)})"
        why = (
            _why_not_another(place, (node.body, node.orelse), (node,))
            or _not_computed(place, values)
            or why_not_differentiated(place, node.test, (node.body,), (node.orelse,))
        )
        said = f"Compute both values and select on the device ({_BOTH})"
        yield from rewrite(context, "if-where", line.replaced(choice, values), said) if why is None else withhold(why)


def _not_computed(place: Place, rows: str) -> str | None:
    """Why both sides may not always be computed, as `dynadiag fix` decides it."""
    why = why_not_selected(rows.removeprefix("return "), gradients=not place.no_gradient, imports=place.imports)
    return None if why is None else f"both sides would be computed, and {why}"


def _chooses_alike(place: Place, test: ast.expr) -> bool:
    """Whether a choice between values is all that the condition makes.

    The tensors are floats, so that arithmetic with numbers gives no other type on one side; nothing is written later into what would be a
    new tensor; and no part of the condition is there only if another one holds.
    """
    return place.floating and not _asks_in_turn(test) and not written_later(place)


def _asks_in_turn(test: ast.expr) -> bool:
    """Whether a part of the condition may only be there if another one holds: `m.any() and x[m].min() > 1`."""
    return isinstance(test, ast.BoolOp) and any(isinstance(node, ast.Subscript) for node in ast.walk(test))


def _statement(context: BreakContext, place: Place, statement: ast.If, condition: str) -> Iterator[Said]:
    body, before = statement.body, place.written(statement, statement)
    if len(body) == 1 and isinstance(body[0], ast.Raise) and not statement.orelse:
        message = _message(place, body[0])
        if message is not None:
            after = f"torch._assert_async({negated(condition, place.imports)}, {message})"
            also = "" if context.returns else f", also where `{place.node.name}` is called uncompiled"
            text = f"Check on the device; the error then comes later, as a RuntimeError{also}"
            yield Advice(slug="if-check", text=text, before=before, after=after)
    elif not place.is_single(statement.test) or not _chooses_alike(place, statement.test):
        return
    elif len(body) == 1 and isinstance(body[0], ast.Return):
        yield from _returns(place, statement, body[0], condition)
    elif (rows := _rows(place, statement, condition)) is not None:
        text = f"Always compute the value and select on the device ({_BOTH})"
        why = _not_another(place, statement) or _not_computed(place, rows) or _not_differentiated(place, statement)
        yield Advice(slug="if-where", text=text, before=before, after=rows) if why is None else Withheld(why)


def _guarded_statement(context: BreakContext, python: str, condition: str) -> Iterator[Said]:
    """`if x is not None and tensor:` without an `else`: Python goes on to decide its part, and the values are chosen below it."""
    place = context.place
    statement = None if place is None else place.statement()
    if place is None or not isinstance(statement, ast.If) or statement.orelse or context.line.code.startswith("elif"):
        return
    _, decides = split_python_part(statement.test)
    alone = ast.copy_location(ast.If(decides, statement.body, []), statement)
    for found in _statement(context, place, alone, condition):
        if isinstance(found, Advice) and found.slug == "if-where":
            rows = "\n".join(f"    {row}" for row in (found.after or "").split("\n"))
            yield replace(found, after=f"if {python}:\n{rows}")
        elif not isinstance(found, Advice):
            yield found


def _not_another(place: Place, statement: ast.If) -> str | None:
    """Why the branch may not always give its names new tensors."""
    for child in statement.body:
        if isinstance(child, ast.AugAssign) and isinstance(child.target, ast.Name) and has_other_name(place, child.target.id):
            return f"`{place.text(child)}` writes into a tensor that something else has too"
        target = child.targets[0] if isinstance(child, ast.Assign) else None
        if not isinstance(child, ast.Assign) or not isinstance(target, ast.Name):
            continue
        others = [each.value for each in statement.orelse if isinstance(each, ast.Assign)]
        if (why := _why_not_another(place, (*(others or [target]), child.value), reads_of_this(place, statement, target.id))) is not None:
            return why
    return None


def _not_differentiated(place: Place, statement: ast.If) -> str | None:
    """Why the values of the branch may not be chosen where a gradient flows; for a side without one counts what the name was before."""
    sides = [[pair for child in block if (pair := _assigned(place, child)) is not None] for block in (statement.body, statement.orelse)]
    names = {name for side in sides for name, _, _ in side}
    kept = ([ast.Name(name, ast.Load()) for name in sorted(names - {text for text, _, _ in side})] for side in sides)
    then, other = ([*(value for _, value, _ in side), *rest] for side, rest in zip(sides, kept, strict=True))
    return why_not_differentiated(place, statement.test, then, other)


def _returns(place: Place, statement: ast.If, first: ast.Return, condition: str) -> Iterator[Said]:
    """`if c: return a` with `return b` behind it is one choice."""
    second = statement.orelse[0] if len(statement.orelse) == 1 else None if statement.orelse else place.next_statement(statement)
    if not isinstance(second, ast.Return) or first.value is None or second.value is None:
        return
    if place.same_shape(first.value, second.value):
        after = f"return torch.where({condition}, {place.text(first.value)}, {place.text(second.value)})"
        text = f"Compute both results and select on the device ({_BOTH})"
        why = (
            _why_not_another(place, (first.value, second.value), (first.value, second.value))
            or _not_computed(place, after)
            or why_not_differentiated(place, statement.test, (first.value,), (second.value,))
        )
        before = place.written(statement, second)
        yield Advice(slug="if-return-where", text=text, before=before, after=after) if why is None else Withheld(why)


def _rows(place: Place, statement: ast.If, condition: str) -> str | None:
    """The choice written out, or None: each side sets plain names to what has one shape, the other side of an `else` the same name."""
    first = [_assigned(place, child) for child in statement.body]
    second = [_assigned(place, item) for item in statement.orelse]
    if None in first or None in second or not first:
        return None
    sides = [pair for pair in first if pair is not None], {pair[0]: pair for pair in second if pair is not None}
    names = [name for name, _, _ in sides[0]]
    if len(set(names)) != len(names) or (sides[1] and (set(sides[1]) != set(names) or len(names) != 1)):
        return None
    kept, rows = condition, []
    if any(isinstance(node, ast.Name) and node.id in names[:-1] for node in ast.walk(ast.parse(condition, mode="eval"))):
        kept, rows = "taken", [f"taken = {condition}"]
    for name, value, text in sides[0]:
        target = next(
            descendant
            for descendant in ast.walk(statement)
            if isinstance(descendant, ast.Name) and descendant.id == name and isinstance(descendant.ctx, ast.Store)
        )
        other = sides[1].get(name, (name, target, name))
        if not place.same_shape(value, other[1]):
            return None
        rows.append(f"{name} = torch.where({kept}, {text}, {other[2]})")
    return "\n".join(rows)


def _assigned(place: Place, node: ast.stmt) -> tuple[str, ast.expr, str] | None:
    """The name, the new value and its text of `x = e`, or of `x += e` where no other name can have the tensor that it changes."""
    if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name) and type(node.op) in _SIGNS:
        values = place.values(node.target.id)
        made = (isinstance(expression, ast.BinOp | ast.UnaryOp) or _is_new(expression) for expression in values)
        fresh = place.is_local(node.target.id) and all(made)
        text = place.text(node.value)
        text = text if isinstance(node.value, ast.Name | ast.Constant | ast.Call | ast.Attribute | ast.Subscript) else f"({text})"
        value = ast.BinOp(left=ast.Name(id=node.target.id, ctx=ast.Load()), op=node.op, right=node.value)
        return (node.target.id, value, f"{node.target.id} {_SIGNS[type(node.op)]} {text}") if fresh else None
    if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
        return node.targets[0].id, node.value, place.text(node.value)
    return None


def _is_new(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and dotted(node.func) in ("torch.tensor", "torch.zeros", "torch.ones", "torch.full")


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
    inside = [node for child in block for node in ast.walk(child)]
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


def _why_not_another(place: Place, values: Iterable[ast.expr], uses: Iterable[ast.expr]) -> str | None:
    """Why a new tensor may not take the place of one of these values; None where it may."""
    old = kept_elsewhere(place, values, uses)
    if old is None:
        return None
    return (
        f"where the other side is chosen the program continues with the tensor `{place.text(old)}` itself, which other code may have too; "
        "`torch.where` would make a new one"
    )
