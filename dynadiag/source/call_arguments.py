"""How the line that calls a compiled function writes what the function calls `x` or `kwargs['input_ids']`."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from dynadiag.source.line import SourceLine, dotted, parse_line

_SOURCE = re.compile(
    r"(?P<root>[A-Za-z_]\w*)(?:\[(?P<quote>['\"])(?P<key>\w+)(?P=quote)\]|\[(?P<index>\d{1,3})\])?(?P<rest>.*)$", re.DOTALL
)
# Statements before which a line can be put so that it runs once before each call.
_PLAIN = (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr, ast.Return, ast.Assert)
_INNER = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.IfExp, ast.BoolOp)
# What torch and Python offer under these names is not what a program compiles.
_NOT_COMPILED = re.compile(r"(?:torch|numpy|math|time|random|os|sys|logging|logger)(?:\.|$)")


@dataclass(frozen=True, eq=False)
class Argument:
    """What a call passes: its text, with what the source goes on with, and where it stands.

    `is_name` says that it is there before the line runs, the same object each time that it is read: no attribute by itself, which a
    property may make anew each time.
    """

    text: str
    node: ast.expr
    is_name: bool
    parameter: str

    @property
    def name(self) -> str:
        """A name for the argument before the call."""
        return self.text if self.is_name else f"{self.parameter}_marked"


def argument(line: SourceLine, source: str, inputs: Collection[str], parameters: Sequence[str] | None = None) -> Argument | None:
    """What the one call on the line passes as `source`; None where the line does not tell for certain.

    `f(ids=tokens)` shows that `ids` and `kwargs['ids']` are `tokens`, `f(**batch)` that they are `batch["ids"]`, `f(a, b)` what the
    `parameters` are. Where those are not known, `f(x)` shows that `x` is `x`, and `f(batch)` what `x` is when the tensors of the function
    come from no other variable than `x` (`inputs`).
    """
    call, parts = the_call(line), _SOURCE.match(source)
    if call is None or parts is None:
        return None
    root, rest = parts["root"], source[parts.end("root") :]
    if root == "kwargs" and parts["key"]:
        return _by_keyword(line, call, parts["key"], parts["rest"])
    if _unpacked(call) and (call.args or root not in (parameters or inputs) or not re.match(r"[.\[]|$", rest)):
        return None  # a variable of the function is surely an argument of this call only if all are given by keyword
    if root == "args" and parts["index"]:
        return _told(line, call.args[0] if parts["index"] == "0" and call.args else None, parts["rest"], "input")
    if _unpacked(call) or _keyword(call, root) is not None:
        return _by_keyword(line, call, root, rest)
    if parameters is not None:
        at = parameters.index(root) if root in parameters else len(call.args)
        return _told(line, call.args[at] if at < len(call.args) <= len(parameters) else None, rest, root)
    found = next((expression for expression in call.args if isinstance(expression, ast.Name) and expression.id == root), None)
    alone = len(call.args) == 1 and not call.keywords and set(inputs) - {"self"} == {root} and root != "self"
    return _told(line, found or (call.args[0] if alone else None), rest, root)


def the_call(line: SourceLine) -> ast.Call | None:
    """The only call on the line that can be the one of the compiled function; None where the line goes on behind a semicolon."""
    if not isinstance(line.statement, _PLAIN) or any(isinstance(node, _INNER) for node in line.nodes):
        return None
    if line.tree is not None and line.complete and len(line.tree.body) > 1:
        return None
    calls = [node for node in line.nodes if isinstance(node, ast.Call) and not _of_others(node)]
    stars = any(isinstance(argument, ast.Starred) for call in calls for argument in call.args)
    return calls[0] if len(calls) == 1 and not stars else None


def _of_others(call: ast.Call) -> bool:
    """Whether the call is surely that of something else: a builtin, a function of torch, a method of a result, without arguments."""
    function = call.func
    while isinstance(function, ast.Attribute | ast.Subscript):
        function = function.value
    if isinstance(function, ast.Call):
        return True
    name = dotted(call.func) or ""
    if not call.args and not call.keywords:
        return True  # it passes nothing
    return hasattr(builtins, name) or _NOT_COMPILED.match(name) is not None


def _unpacked(call: ast.Call) -> list[ast.expr]:
    """The dictionaries that the call unpacks: `batch` of `f(**batch)`."""
    return [keyword.value for keyword in call.keywords if keyword.arg is None]


def _by_keyword(line: SourceLine, call: ast.Call, name: str, rest: str) -> Argument | None:
    """What the call gives as this keyword argument: `ids` of `f(name=ids)`, `batch["name"]` of `f(**batch)`."""
    value, unpacked = _keyword(call, name), _unpacked(call)
    if value is not None:
        return _told(line, value, rest, name)
    return _told(line, unpacked[0], f'["{name}"]{rest}', name) if len(unpacked) == 1 and _is_name(unpacked[0]) else None


def _keyword(call: ast.Call, name: str) -> ast.expr | None:
    return next((keyword.value for keyword in call.keywords if keyword.arg == name), None)


def _told(line: SourceLine, value: ast.expr | None, rest: str, parameter: str) -> Argument | None:
    """The argument, if it names something, or is an expression that can be evaluated before the line."""
    if value is None or not (_is_name(value) or (not rest and _comes_first(line, value))):
        return None
    is_name = _is_name(value) and (bool(rest) or not isinstance(value, ast.Attribute))
    return Argument(f"{line.text(value)}{rest}", value, is_name, parameter)


def _comes_first(line: SourceLine, value: ast.expr) -> bool:
    """Whether nothing is called on the line before the expression is evaluated, or it calls nothing itself."""
    inside = {id(node) for node in ast.walk(value)}
    if any(isinstance(node, ast.NamedExpr | ast.Await | ast.Starred) for node in line.nodes):
        return False
    calls = [node for node in line.nodes if isinstance(node, ast.Call)]
    around = {id(node) for node in calls if any(id(child) == id(value) for child in ast.walk(node))}
    before = [node for node in calls if id(node) not in inside | around and node.col_offset < value.col_offset]
    return not before or not any(id(node) in inside for node in calls)


def _is_name(value: ast.expr) -> bool:
    """`ids`, `batch.ids`, `batch["ids"]`: the same object each time it is read. `x[rows]` and `x[0]` of a tensor are new ones."""
    while isinstance(value, ast.Attribute) or (isinstance(value, ast.Subscript) and _is_key(value.slice)):
        value = value.value
    return isinstance(value, ast.Name)


def _is_key(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def texts_passed(lines: Collection[str | None], function: str, parameters: Sequence[str]) -> frozenset[str]:
    """The parameters that are given a text written there by each of these lines, which call the function; none if one of them does not show
    its call.
    """
    found = frozenset(parameters) if lines else frozenset()
    for code in lines:
        nodes = parse_line(code).nodes
        calls = [node for node in nodes if isinstance(node, ast.Call) and (dotted(node.func) or "").rpartition(".")[2] == function]
        for call in calls or (ast.Call(ast.Name(""), [], []),):
            given = dict(zip(parameters, call.args, strict=False)) | {
                keyword.arg: keyword.value for keyword in call.keywords if keyword.arg is not None
            }
            found &= {
                name for name, expression in given.items() if isinstance(expression, ast.Constant) and isinstance(expression.value, str)
            }
    return found
