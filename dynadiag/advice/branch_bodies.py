"""The one advice that fits the body of an `if tensor:`: it raises, leaves the loop, returns, sets names, writes, or only reports."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dynadiag.advice.blocks import Block, is_pure
from dynadiag.advice.situation import Situation, quoted, sketch
from dynadiag.advice.source import dotted, parse_line
from dynadiag.model.report import Advice

BOTH = "both values are computed, and `torch.where` needs shapes that broadcast and gives one dtype"
_SIGNS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.MatMult: "@", ast.Pow: "**"}


def negated(condition: str) -> str:
    """The opposite of a condition on tensors, as text: `torch.logical_not(c)` of `c` and the other way round."""
    line = parse_line(condition)
    call = line.statement.value if isinstance(line.statement, ast.Expr) else None
    if isinstance(call, ast.Call) and dotted(call.func) == "torch.logical_not" and len(call.args) == 1 and line.text(call) == condition:
        return line.text(call.args[0])
    return f"torch.logical_not({condition})"


def by_body(situation: Situation, block: Block, statement: ast.If, condition: str) -> Iterator[Advice]:
    """What to do about this `if`, whose body is known; words only where the change cannot be written out."""
    body = [one for one in statement.body if not _is_text(one)]
    inside = [node for one in (*body, *statement.orelse) for node in ast.walk(one)]
    if any(isinstance(one, ast.Raise) for one in body):
        yield from _raises(situation, block, statement, condition)
    elif any(isinstance(one, ast.Break) for one in inside):
        text = "The branch leaves the loop, so the data decide how often it runs: keep the loop in plain Python and compile its body"
        yield from sketch(situation, "loop-break", text)
    elif any(isinstance(one, ast.Continue) for one in inside):
        text = (
            "The branch skips the rest of the loop's body: drop the check if that code does nothing when it would be skipped (no rows, a "
            "weight of zero), else keep the loop in plain Python and compile its body"
        )
        yield from sketch(situation, "loop-skip", text)
    elif any(isinstance(one, ast.Return) for one in inside):
        yield from _returns(situation, block, statement, condition)
    elif (rows := _rows(block, statement, condition)) is not None:
        yield from _sets(situation, block, statement, condition, rows)
    elif all(isinstance(one, ast.Expr) for one in (*body, *statement.orelse)) and not _writes(inside):
        text = f"The branch of {_shown(condition)} only makes calls: {_handed_out(situation)} and decide after the compiled call"
        yield from sketch(situation, "if-outside", text)
    else:
        text = (
            f"The branch of {_shown(condition)} does more than choose a value: decide by it outside the compiled function (return the "
            f"tensor first), or write in any case what `torch.where` chooses ({BOTH})"
        )
        yield from sketch(situation, "if-apart", text)


def _raises(situation: Situation, block: Block, statement: ast.If, condition: str) -> Iterator[Advice]:
    raised = statement.body[0]
    alone = len(statement.body) == 1 and not statement.orelse and not block.is_elif
    message = _message(block, raised) if isinstance(raised, ast.Raise) else None
    check = f"torch._assert_async({negated(condition)}, {message or '<message>'})"
    if alone and message is not None:
        text = "Check on the device; the error then comes later, as a RuntimeError"
        yield Advice(slug="if-check", text=text, before=block.text(statement), after=check)
        return
    text = f"The branch raises an error: check on the device with {quoted(check, 120)} (the error then comes later, as a RuntimeError)"
    yield from sketch(situation, "if-check", f"{text}, or check before the compiled call")


def _message(block: Block, node: ast.Raise) -> str | None:
    """The constant text of `raise E("text")`."""
    raised = node.exc
    if isinstance(raised, ast.Call) and len(raised.args) == 1 and isinstance(raised.args[0], ast.Constant) and not raised.keywords:
        return block.text(raised.args[0]) if isinstance(raised.args[0].value, str) else None
    return None


def _returns(situation: Situation, block: Block, statement: ast.If, condition: str) -> Iterator[Advice]:
    """`if c: return a` with `return b` behind it is one choice; any other early end is told in words."""
    behind = statement.orelse or list(block.statements[1:2])
    pair = [one[0].value for one in (statement.body, behind) if len(one) == 1 and isinstance(one[0], ast.Return)]
    first, second = pair if len(pair) == 2 else (None, None)
    if first is not None and second is not None and is_pure(first) and is_pure(second) and not block.is_elif:
        before = block.text(statement) if statement.orelse else f"{block.text(statement)}\n{block.text(block.statements[1])}"
        after = f"return torch.where({condition}, {block.text(first)}, {block.text(second)})"
        yield Advice(slug="if-return-where", text=f"Compute both results and choose on the device ({BOTH})", before=before, after=after)
        return
    text = (
        f"The branch of {_shown(condition)} returns early: end the compiled function before this line, decide in plain Python, and "
        "compile the rest as a function of its own"
    )
    yield from sketch(situation, "if-return-split", text)


def _sets(situation: Situation, block: Block, statement: ast.If, condition: str, rows: str) -> Iterator[Advice]:
    text = f"Compute the value in any case and choose on the device ({BOTH}"
    text += "" if statement.orelse else "; the name must have a tensor before the line"
    text += "; make plain numbers tensors first if both are numbers)"
    if any(isinstance(node, ast.AugAssign) for node in statement.body):
        text += "; the old line changed the tensor in place, this one makes a new tensor"
    if block.is_elif:
        yield from sketch(situation, "if-where", f"{text}: {quoted(rows.partition(chr(10))[0], 120)}")
    else:
        yield Advice(slug="if-where", text=text, before=block.text(statement), after=rows)


def _handed_out(situation: Situation) -> str:
    """How the tensor gets out of the function: what a hook or another callback returns goes to the library that calls it."""
    if not situation.taken_by:
        return "return the tensor"
    return f"keep the tensor in an object of yours (what this function returns goes to `{situation.taken_by}`)"


def _rows(block: Block, statement: ast.If, condition: str) -> str | None:
    """The choice written out, or None: each side sets plain names, the other side of an `else` the same ones."""
    first = [_assigned(block, one) for one in statement.body]
    second = [_assigned(block, one) for one in statement.orelse]
    if None in first or None in second or not first:
        return None
    sides = [pair for pair in first if pair is not None], [pair for pair in second if pair is not None]
    names = [name for name, _ in sides[0]]
    other = dict(sides[1])
    if len(set(names)) != len(names) or (sides[1] and (set(other) != set(names) or len(names) != 1 or len(sides[1]) != 1)):
        return None
    kept, rows = condition, []
    if any(isinstance(node, ast.Name) and node.id in names[:-1] for node in ast.walk(ast.parse(condition, mode="eval"))):
        kept, rows = "taken", [f"taken = {condition}"]
    rows += [f"{name} = torch.where({kept}, {value}, {other.get(name, name)})" for name, value in sides[0]]
    return "\n".join(rows)


def _assigned(block: Block, node: ast.stmt) -> tuple[str, str] | None:
    """The name and the new value of `x = e` or `x += e`, when computing `e` in any case does nothing else."""
    if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name) and type(node.op) in _SIGNS and is_pure(node.value):
        value = block.text(node.value)
        value = value if isinstance(node.value, ast.Name | ast.Constant | ast.Call | ast.Attribute | ast.Subscript) else f"({value})"
        return node.target.id, f"{node.target.id} {_SIGNS[type(node.op)]} {value}"
    if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name) and is_pure(node.value):
        return node.targets[0].id, block.text(node.value)
    return None


def _writes(nodes: list[ast.AST]) -> bool:
    return any(isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute) and one.func.attr.endswith("_") for one in nodes)


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _shown(condition: str) -> str:
    """The condition as the program has it: `if done:` is about `done`, though a tensor's truth is `done != 0`."""
    return quoted(condition.removesuffix(" != 0"), 60)
