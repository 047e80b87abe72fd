"""What `___stack0` is: a value that was on Python's stack when a graph break ended the graph, handed on to the resume function.

torch numbers the values of the stack from the bottom, without NULLs (`ContinueExecutionCache.generate`,
`torch/_dynamo/resume_execution.py`, 2.11 and 2.15); the result of the call that broke is the last of them.
The resume function's name has the line of the break.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from dynadiag.facts.user_frames import resume_line
from dynadiag.model.run import Frame, Run
from dynadiag.source.line import SourceLine, dotted, parse_line
from dynadiag.source.tree import children_of

ON_STACK = "___stack"
_ON_STACK = re.compile(rf"{ON_STACK}(?P<index>\d{{1,6}})(?P<rest>[\w.()\[\]]*)")
_HELD = re.compile(rf"(?:(?P<length>len\()|keys of )(?P<inner>{ON_STACK}[\w.\[\]]+)(?(length)\))")
_NUMBER = re.compile(r"-?\d+(?:\.\d*)?(?:e[-+]?\d+)?$|-?inf$|nan$")
_OF_TENSORS = re.compile(r"\.(?:size\(\d+\)|stride\(\d+\)|dim\(\)|dtype|device|requires_grad|storage_offset\(\))")
# A line that is one such call is a statement of its own; another call can be an argument that a call of several lines has there.
_STATEMENTS = re.compile(r"print$|(?:.*\.)?(?:append|add|extend|update|write|debug|info|warning|error|log|log_metric|add_scalar)$")
# What keeps more on the stack than its operands in their order, or evaluates them in another order or frame.
_UNTOLD = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Lambda, ast.IfExp, ast.BoolOp, ast.Dict, ast.Starred, ast.Await)


@dataclass(frozen=True, slots=True)
class Broken:
    """A line on which Dynamo broke: its code and the contexts of the breaks there."""

    code: str
    contexts: tuple[str, ...]


BrokenLines = Mapping[tuple[str, int | None], Broken]


def broken_lines(run: Run) -> BrokenLines:
    """The lines of all breaks, those that lead to them too, by file and line."""
    found: dict[tuple[str, int | None], Broken] = {}
    for event in run.breaks:
        for place in dict.fromkeys((*event.stack, *(() if event.torch_frame is None else (event.torch_frame,)))):
            known = found.get((place.file, place.line))
            if known is None and place.code:
                known = found[place.file, place.line] = Broken(place.code, ())
            if known is not None and event.context and place == event.torch_frame and event.context not in known.contexts:
                found[place.file, place.line] = Broken(known.code, (*known.contexts, event.context))
    return found


def written(source: str, frame: Frame, lines: BrokenLines, values: tuple[str, ...] = ()) -> str:
    """The source for a sentence: in backticks, and in words what torch calls `___stack0`.

    The expression is only named where it is certain: one call of the line that broke can have left a value there, and what torch saw
    change (a number, or a property of a tensor) cannot be an iterator or a function that lies on the stack below it.
    """
    if ON_STACK not in source:
        return f"`{source}`"
    parts = [part for part in re.split(r", (?![^\[(]*[\])])", source) if part]
    return ", ".join(_written(part, frame, lines, values) for part in parts)


def _written(part: str, frame: Frame, lines: BrokenLines, values: tuple[str, ...]) -> str:
    held = _HELD.fullmatch(part)
    match = _ON_STACK.fullmatch(part if held is None else held["inner"])
    if match is not None and held is not None:
        rest = match["rest"].removeprefix(".")
        what = f"the {'length' if held['length'] else 'keys'} of "
        return what + (f"`{rest}` of " if rest else "") + _computed_before("a value", frame)
    if match is None:
        return f"`{part}`" if ON_STACK not in part else f"a condition on {_computed_before('a value', frame)}"
    expression = _expression(int(match["index"]), frame, lines) if _certain(match["rest"], values) else None
    value = _computed_before("a value" if expression is None else f"the value of `{expression}`", frame)
    return f"`{match['rest'].removeprefix('.')}` of {value}" if match["rest"] else value


def _computed_before(what: str, frame: Frame) -> str:
    line = resume_line(frame.name)
    return f"{what} computed before the {'graph break' if line is None else f'break at line {line}'}"


def _certain(rest: str, values: tuple[str, ...]) -> bool:
    if rest:
        return _OF_TENSORS.fullmatch(rest) is not None
    return bool(values) and all(_NUMBER.match(value) for value in values)


def _expression(index: int, frame: Frame, lines: BrokenLines) -> str | None:
    """The one call on the line of the break whose result is value `index` of the stack, as it is written there."""
    broken = lines.get((frame.file or "", resume_line(frame.name)))
    if broken is None:
        return None
    line = parse_line(broken.code)
    if not _is_statement(line, index):
        return None
    calls = [node for node in line.nodes if isinstance(node, ast.Call) and _below(node, line) == index]
    if len(calls) > 1:
        calls = [node for node in calls if any(_names(node, context) for context in broken.contexts)]
    return line.text(calls[0]) if len(calls) == 1 else None


def _is_statement(line: SourceLine, index: int) -> bool:
    """Whether the line is surely a whole statement; for the lowest value of the stack it does not matter."""
    statement = line.statement
    if statement is None or isinstance(statement, ast.AugAssign) or line.code.rstrip().endswith(","):
        return False
    if isinstance(statement, ast.Expr):
        call = statement.value
        return index == 0 or (isinstance(call, ast.Call) and _STATEMENTS.match(dotted(call.func) or "") is not None)
    return index == 0 or not isinstance(statement, ast.Assign) or " = " in line.code


def _names(call: ast.Call, context: str) -> bool:
    """Whether the context of a break (`call_method TensorVariable() item () {}`, `<function f at 0x1>`) speaks of this call."""
    name = re.escape(str(dotted(call.func) or getattr(call.func, "attr", "")).rpartition(".")[2])
    return bool(name) and re.search(rf"\b{name} ?\(|\bfunction (?:[\w.<>]*\.)?{name}\b", context) is not None


def _below(node: ast.expr, line: SourceLine) -> int | None:
    """How many values lie on the stack when the node is evaluated; None if one of them could be what changed."""
    count, child = 0, node
    while isinstance(parent := line.parent(child), ast.expr | ast.keyword):
        if isinstance(parent, _UNTOLD):
            return None
        for before in _evaluated_before(child, parent):
            if not isinstance(before, ast.Constant) and not (isinstance(parent, ast.Call) and before is parent.func):
                return None
            count += 1
        child = parent  # type: ignore[assignment]
    return count


def _evaluated_before(child: ast.AST, parent: ast.AST) -> Iterator[ast.AST]:
    """The operands of the parent that wait on the stack while the child is evaluated."""
    for node in children_of(parent):
        if node is child:
            return
        if isinstance(node, ast.expr | ast.keyword):
            yield node.value if isinstance(node, ast.keyword) else node
