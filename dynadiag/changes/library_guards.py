"""Advice for breaks in libraries: the conditions of the library under which its line does not run, and how the user's line decides them.

The source of libraries is recorded by the program that ran (`dynadiag_library_function`). It is parsed, never compiled or run.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from dynadiag.facts.statements import parsed_module
from dynadiag.facts.user_frames import of_last_run
from dynadiag.facts.wording import short_place
from dynadiag.model.location import Location
from dynadiag.model.report import Advice
from dynadiag.model.run import Run, SourceFunction
from dynadiag.source.line import SourceLine, dotted
from dynadiag.source.place import Place
from dynadiag.source.tree import called_name, calls_in, holds, nodes_in, nodes_of

_MOST_LEAVES = 4
_MOST_DEPTH = 12
_LONGEST = 200
_LEAVES = (ast.Return, ast.Raise, ast.Continue, ast.Break)
Wanted = Literal["false", "true", "given", "none", "other"]


@dataclass(frozen=True, eq=False)
class Step:
    """A function of a library on the way from the user's line to the break, and the row of it that leads on, or breaks."""

    place: Location
    node: ast.FunctionDef | ast.AsyncFunctionDef
    row: int
    environment: tuple[tuple[str, str], ...]

    @property
    def parameters(self) -> tuple[str, ...]:
        """Its parameters, without the object of a method."""
        found = [posonlyarg.arg for posonlyarg in (*self.node.args.posonlyargs, *self.node.args.args)]
        return (*found[found[:1] in (["self"], ["cls"]) :], *(parameter.arg for parameter in self.node.args.kwonlyargs))

    def covers(self, node: ast.AST) -> bool:
        """Whether the row is one of the node's."""
        return getattr(node, "lineno", 0) <= self.row <= (getattr(node, "end_lineno", 0) or 0)


class Leaf(NamedTuple):
    """A part of a condition: the value that it asks, and what that has to be for the line not to run."""

    value: ast.expr
    wanted: Wanted
    test: ast.expr
    step: int


def steps_of(stack: Sequence[Location], run: Run) -> tuple[Step, ...]:
    """The functions of libraries below the user's line whose source was recorded, outermost first."""
    found = []
    for place in stack:
        function = library_function_at(place, run)
        tree = None if function is None else parsed_module(function.text)
        node = tree.body[0] if tree is not None and tree.body else None
        if function is not None and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and place.line is not None:
            found.append(Step(place, node, place.line - function.line + 1, function.environment))
    return tuple(found)


def library_function_at(place: Location, run: Run) -> SourceFunction | None:
    """The recorded function of a library that a place is in; None where its source was not recorded."""
    inner = None
    for source_function in _by_file(run).get(place.file, ()):
        if place.line is not None and source_function.line <= place.line <= source_function.line + source_function.text.count("\n"):
            inner = source_function if inner is None or source_function.line > inner.line else inner
    return inner


@of_last_run
def _by_file(run: Run) -> dict[str, list[SourceFunction]]:
    found: dict[str, list[SourceFunction]] = {}
    for library_function in run.library_functions:
        found.setdefault(library_function.file, []).append(library_function)
    return found


def calls_on(line: SourceLine, place: Place | None) -> tuple[ast.Call, ...]:
    """The calls on the user's line, outer ones first; of a line that is a part of a statement those of its function that cover the row."""
    if line.complete or place is None:
        return tuple(node for node in line.nodes if isinstance(node, ast.Call))
    every = place.nodes(ast.Call)
    return tuple(call for call in every if call.lineno <= place.row <= (call.end_lineno or 0))


def library_guards(steps: Sequence[Step], line: SourceLine, called: Sequence[ast.Call]) -> Iterator[Advice]:
    """What would keep the library from the line that breaks, by the calls on the user's line; the innermost condition first."""
    for number in range(len(steps) - 1, -1, -1):
        for leaf in _leaves(steps[number], number):
            found = _resolved(leaf.value, number, steps, called, 0)
            if found is not None and (advice := _advice(found, leaf, steps, line)) is not None:
                yield advice


# -- conditions


def _leaves(step: Step, number: int) -> Iterator[Leaf]:
    for test, held in _conditions(step):
        found = [(value, wanted) for value, wanted in _parts(test, held) if wanted != "other"]
        if 0 < len(found) <= _MOST_LEAVES:
            yield from (Leaf(value, wanted, test, number) for value, wanted in found)


def _conditions(step: Step) -> Iterator[tuple[ast.expr, bool]]:
    """The conditions that hold, or do not, where the row runs; the nearest first."""
    found: list[tuple[ast.expr, bool]] = []
    body: Sequence[ast.stmt] = step.node.body
    while body:
        at = next((statement for statement in body if step.covers(statement)), None)
        if at is None:
            break
        found += [
            (child.test, False)
            for child in body
            if child.lineno < at.lineno and isinstance(child, ast.If) and not child.orelse and _ends(child.body)
        ]
        inner: Sequence[ast.stmt] = ()
        if isinstance(at, ast.If) and any(map(step.covers, at.body)):
            found.append((at.test, True))
            inner = at.body
        elif isinstance(at, ast.If) and any(map(step.covers, at.orelse)):
            found.append((at.test, False))
            inner = at.orelse
        else:
            blocks = [getattr(at, name, []) for name in ("body", "orelse", "finalbody")]
            blocks += [item.body for item in getattr(at, "handlers", [])]
            inner = next((block for block in blocks if isinstance(block, list) and any(map(step.covers, block))), ())
        if not inner:
            found += _of_expressions(at, step)
        body = inner
    return reversed(found)


def _ends(body: Sequence[ast.stmt]) -> bool:
    return bool(body) and isinstance(body[-1], _LEAVES)


def _of_expressions(statement: ast.stmt, step: Step) -> Iterator[tuple[ast.expr, bool]]:
    """`f(x) if a else b` and `a and f(x)`: only one side of them calls anything."""
    header = statement.test if isinstance(statement, ast.If | ast.While | ast.Assert) else statement
    for node in nodes_in(header):
        if isinstance(node, ast.IfExp) and step.covers(node) and _calls(node.body) != _calls(node.orelse):
            yield node.test, _calls(node.body)
        elif isinstance(node, ast.BoolOp) and step.covers(node) and _calls(node.values[-1]) and not any(map(_calls, node.values[:-1])):
            yield from ((value, isinstance(node.op, ast.And)) for value in node.values[:-1])


def _calls(node: ast.AST) -> bool:
    return holds(node, ast.Call)


def _parts(test: ast.expr, held: bool) -> Iterator[tuple[ast.expr, Wanted]]:
    """The parts each of which, being otherwise, turns the condition round; none where several would have to be otherwise at once."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from _parts(test.operand, not held)
    elif isinstance(test, ast.BoolOp):
        if isinstance(test.op, ast.And) == held:
            for value in test.values:
                yield from _parts(value, held)
        else:
            parts = [list(_parts(value, held)) for value in test.values]
            names = {ast.unparse(value) for part in parts for value, _ in part}
            if len(names) == 1:  # `kind is None or kind not in KINDS`
                yield from ((value, wanted) for part in parts for value, wanted in part if wanted == "given")
    elif isinstance(test, ast.Compare) and len(test.ops) == 1:
        other, op = test.comparators[0], test.ops[0]
        if isinstance(op, ast.Is | ast.IsNot) and isinstance(other, ast.Constant) and other.value is None:
            yield test.left, "given" if isinstance(op, ast.Is) == held else "none"
        elif isinstance(op, ast.In | ast.NotIn):
            yield test.left, "other"
    elif isinstance(test, ast.Name | ast.Attribute) or _variable(test) is not None:
        yield test, "false" if held else "true"
    elif isinstance(test, ast.NamedExpr):
        yield from _parts(test.value, held)


# -- where a value comes from


class _Found(NamedTuple):
    """Whose value decides: an argument of the user's call, an attribute of an object, or a variable of the environment."""

    kind: Literal["argument", "attribute", "environment"]
    name: str
    call: ast.Call | None = None
    given: ast.expr | None = None


def _resolved(value: ast.expr, number: int, steps: Sequence[Step], called: Sequence[ast.Call], depth: int) -> _Found | None:
    step = steps[number]
    variable, name = _variable(value), dotted(value)
    if variable is not None:
        return _Found("environment", variable)
    if depth > _MOST_DEPTH or name is None:
        return None
    if name in (*step.parameters, *((step.node.args.kwarg.arg,) if step.node.args.kwarg else ())):
        return _argument(name, number, steps, called, depth)
    source = _assigned(name, step)
    if source is not None and (found := _resolved(source, number, steps, called, depth + 1)) is not None:
        return found
    last = name.rpartition(".")[2]
    if (known := _passed(last.strip("_"), called)) is not None:
        return known
    if (from_environment := _of_environment(last, step)) is not None:
        return _Found("environment", from_environment)
    return _Found("attribute", name) if name.startswith("self.") and name.count(".") == 1 else None


def _variable(value: ast.expr) -> str | None:
    """The variable of `os.environ.get("A")`, `os.environ["A"]`, `os.getenv("A")`."""
    if isinstance(value, ast.Call) and value.args and (dotted(value.func) or "").endswith(("environ.get", "getenv")):
        key: ast.expr = value.args[0]
    elif isinstance(value, ast.Subscript) and (dotted(value.value) or "").endswith("environ"):
        key = value.slice
    else:
        return None
    return key.value if isinstance(key, ast.Constant) and isinstance(key.value, str) else None


def _of_environment(name: str, step: Step) -> str | None:
    known = {text.lower(): variable for text, variable in step.environment}
    return known.get(name.lower())


def _assigned(name: str, step: Step) -> ast.expr | None:
    """What the function gives this name or attribute before the row, if that is one value, and `x` of `getattr(self, "x", None)`."""
    values = [
        node.value
        for node in nodes_of(ast.Assign, step.node)
        if node.lineno < step.row and any(dotted(target) == name for target in node.targets)
    ]
    if len(values) != 1:
        return None
    (value,) = values
    if isinstance(value, ast.Call) and dotted(value.func) == "getattr" and len(value.args) > 1:
        owner, key = value.args[:2]
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            return ast.Attribute(owner, key.value, ast.Load())
    return value if dotted(value) != name else None


def _argument(name: str, number: int, steps: Sequence[Step], called: Sequence[ast.Call], depth: int) -> _Found | None:
    """Where an argument of a step comes from; a decorator passes on all that it is given."""
    step = steps[number]
    while number > 0:
        caller = steps[number - 1]
        call = _call_of(step, caller)
        if call is None:
            return _passed(name, called)
        if (given := _given(name, step, call)) is not None:
            return _resolved(given, number - 1, steps, called, depth + 1)
        if caller.node.args.kwarg is None or not any(keyword.arg is None for keyword in call.keywords):
            return None
        number -= 1
    return _of_users_call(name, step, called)


def _call_of(step: Step, caller: Step) -> ast.Call | None:
    """The call in the caller's row that leads to the function: by its name, or the only one of the row."""
    calls = [node for node in calls_in(caller.node) if caller.covers(node)]
    named = [call for call in calls if called_name(call) == step.node.name]
    return named[0] if len(named) == 1 else calls[0] if len(calls) == 1 else None


def _given(name: str, step: Step, call: ast.Call) -> ast.expr | None:
    keyword = next((item.value for item in call.keywords if item.arg == name), None)
    if keyword is not None:
        return keyword
    at = step.parameters.index(name) if name in step.parameters else len(call.args)
    positional = name in [posonlyarg.arg for posonlyarg in (*step.node.args.posonlyargs, *step.node.args.args)]
    given = call.args[at] if positional and at < len(call.args) else None
    return None if given is None or any(isinstance(argument, ast.Starred) for argument in call.args[: at + 1]) else given


def _of_users_call(name: str, step: Step, called: Sequence[ast.Call]) -> _Found | None:
    """The argument of the user's call, where that surely calls the function: by its name, or because it names the argument."""
    if (found := _passed(name, called)) is not None:
        return found
    named = [call for call in called if called_name(call) == step.node.name]
    if len(named) != 1:
        named = [item for item in called if step.node.name in ("__init__", "forward", "__call__")] if len(called) == 1 else []
    if (
        len(named) != 1
        or any(keyword.arg is None for keyword in named[0].keywords)
        or any(isinstance(argument, ast.Starred) for argument in named[0].args)
    ):
        return None
    return _Found("argument", name, named[0], _given(name, step, named[0]))


def _passed(name: str, called: Sequence[ast.Call]) -> _Found | None:
    """The argument by its name, where one call of the line names it."""
    found = [(call, keyword.value) for call in called for keyword in call.keywords if keyword.arg == name]
    return _Found("argument", name, *found[0]) if len(found) == 1 else None


# -- words


def _advice(found: _Found, leaf: Leaf, steps: Sequence[Step], line: SourceLine) -> Advice | None:
    step = steps[leaf.step]
    because = f"`{ast.unparse(leaf.test)}` at {short_place(Location(step.place.file, _line_of(leaf, step)))}"
    if len(because) > _LONGEST:
        return None
    if found.kind == "environment":
        return _by_environment(found, leaf, because)
    return _by_attribute(found, leaf, because) if found.kind == "attribute" else _by_argument(found, leaf, because, line)


def _line_of(leaf: Leaf, step: Step) -> int:
    return (step.place.line or 0) - step.row + leaf.test.lineno


def _by_argument(found: _Found, leaf: Leaf, because: str, line: SourceLine) -> Advice | None:
    """Only for what the call leaves out, or gives as a constant: what else it gives is the program's own matter (a mask, a flag)."""
    given, name = found.given, found.name
    if given is not None and (not isinstance(given, ast.Constant) or _is(given.value, leaf.wanted)):
        return None
    if leaf.wanted == "given":
        text = (
            f"Pass `{name}=` in this call: the library works it out only where it is not given ({because}). The value has to be known "
            "without reading a tensor, which would break here"
        )
        return Advice(slug="library-argument", text=text)
    if leaf.wanted == "none":
        text = f"Leave `{name}=` out of this call: the line of the library runs only with it ({because})"
        return Advice(slug="library-argument", text=text) if given is not None else None
    value = leaf.wanted.title()
    text = f"Pass `{name}={value}` in this call: the line of the library does not run then ({because}), nor what else it decides"
    if given is not None and given in line.nodes:
        return Advice(slug="library-argument", text=text, before=line.code, after=line.replaced(given, value))
    return Advice(slug="library-argument", text=text)


def _is(value: object, wanted: Wanted) -> bool:
    return {"false": not value, "true": bool(value), "given": value is not None}.get(wanted, value is None)


def _by_attribute(found: _Found, leaf: Leaf, because: str) -> Advice | None:
    name = found.name.rpartition(".")[2]
    if name.startswith("_") or name == "training":
        return None
    value = {"false": "a false value", "true": "a true value", "given": "one of the values that it knows", "none": "None"}[leaf.wanted]
    text = f"Give the library's object {value} for `{name}`, if that is what you want: it decides whether the line runs ({because})"
    return Advice(slug="library-attribute", text=text)


def _by_environment(found: _Found, leaf: Leaf, because: str) -> Advice | None:
    value = {"false": "0", "true": "1"}.get(leaf.wanted)
    if value is None:
        return None
    text = f"Set `{found.name}={value}` in the environment of the program: the library decides by it whether the line runs ({because})"
    return Advice(slug="library-environment", text=text)
