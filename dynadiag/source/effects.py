"""What stands beside a broken line in its function and decides whether a change of that line alone does what is said of it."""

from __future__ import annotations

import ast
import builtins
import textwrap
from collections.abc import Iterator, Mapping

from dynadiag.facts.user_frames import of_last_run
from dynadiag.model.run import Run
from dynadiag.source.function import parse_function
from dynadiag.source.imports import imports_of
from dynadiag.source.line import dotted
from dynadiag.source.place import Place
from dynadiag.source.torch_names import DATA_DEPENDENT, has_in_place_name, is_of_torch, is_torch_function
from dynadiag.source.tree import called_method, calls_in
from dynadiag.source.uses import is_item

_MOST_STEPS = 6
_BLOCKS = (ast.For, ast.AsyncFor, ast.While, ast.Try, ast.With, ast.AsyncWith)
_SAYS = frozenset(("debug", "info", "warning", "warn", "error", "exception", "critical", "log_metrics", "set_postfix", "write"))


TRAINING_METHODS = frozenset(("backward", "zero_grad", "step"))
"""Methods of tensors and optimizers that drive training."""


def drives_training(node: ast.AST) -> bool:
    """Whether code calls `backward()` or an optimizer."""
    return any(isinstance(call.func, ast.Attribute) and call.func.attr in TRAINING_METHODS for call in calls_in(node))


def blocks_around(place: Place) -> list[ast.AST]:
    """The statements around the row in the middle of which Dynamo cannot go on: a break inside leaves the whole function eager.

    A generator, such as a context manager of the program's, is one as a whole.
    """
    found: list[ast.AST] = [node for node in place.around(place.statement()) if isinstance(node, _BLOCKS) and not _is_of_torch(node)]
    generates = len(place.nodes(ast.Yield)) + len(place.nodes(ast.YieldFrom)) > 0
    return [*found, place.node] if generates else found


def breaks_beside(place: Place) -> Iterator[ast.stmt]:
    """The other statements of these blocks that break as well, as far as the text shows: decisions by values of tensors, numbers read out
    of tensors, messages.
    """
    own, blocks = place.statement(), blocks_around(place)
    inside = {
        id(node): node for block in blocks for node in ast.walk(block) if isinstance(node, ast.stmt) and not isinstance(node, _BLOCKS)
    }
    yield from (statement for statement in inside.values() if statement is not own and _breaks(place, statement))


def _breaks(place: Place, statement: ast.stmt) -> bool:
    if isinstance(statement, ast.If | ast.While | ast.Assert):
        return decides(place, statement.test)
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return False
    return any(_reads_or_says(place, node) for node in ast.walk(statement) if isinstance(node, ast.Call))


def _reads_or_says(place: Place, call: ast.Call) -> bool:
    name = dotted(call.func) or ""
    if name in ("float", "int", "bool") and call.args:
        return place.is_tensor(call.args[0])
    method = called_method(call)
    return (
        name in ("print", "breakpoint", "input")
        or method in DATA_DEPENDENT
        or (method in _SAYS and name.partition(".")[0] not in ("torch", "math"))
    )


def decides(place: Place, test: ast.expr, steps: int = 0) -> bool:
    """Whether the function shows that the condition asks a tensor for its value."""
    if isinstance(test, ast.UnaryOp | ast.BoolOp):
        return any(decides(place, expression, steps) for expression in (test.values if isinstance(test, ast.BoolOp) else (test.operand,)))
    if isinstance(test, ast.Compare):
        values = not any(isinstance(op, ast.Is | ast.IsNot) for op in test.ops)
        return values and any(decides(place, item, steps) for item in (test.left, *test.comparators))
    if isinstance(test, ast.Call) and (is_item(test) or dotted(test.func) in ("bool", "float", "int")):
        return is_item(test) or any(map(place.is_tensor, test.args))
    named = place.values(test.id) if isinstance(test, ast.Name) and steps < _MOST_STEPS else ()
    return place.is_tensor(test) or any(decides(place, element, steps + 1) for element in named)


def catches(place: Place, raised: str) -> bool:
    """Whether the row is in a `try` that may catch this exception: by its name, by a base, or by a class that is not known; or in a `with`
    that is there to catch.
    """
    if any(isinstance(node, ast.With) and any(map(_swallows, node.items)) for node in place.around(place.statement())):
        return True
    every = place.nodes(ast.Try)
    around = (descendant for descendant in every if descendant.lineno < place.row <= (descendant.body[-1].end_lineno or 0))
    kinds = [handler.type for part in around for handler in part.handlers]
    named = [each for kind in kinds for each in (kind.elts if isinstance(kind, ast.Tuple) else [kind])]
    return any(_may_catch(None if expression is None else dotted(expression), raised) for expression in named)


def _may_catch(handler: str | None, raised: str) -> bool:
    caught, kind = (getattr(builtins, name or "", None) for name in (handler, raised))
    return not (isinstance(caught, type) and isinstance(kind, type)) or issubclass(kind, caught)


def _swallows(item: ast.withitem) -> bool:
    call = item.context_expr
    return isinstance(call, ast.Call) and (dotted(call.func) or "").rpartition(".")[2] in ("suppress", "raises", "assertRaises")


_UNREADABLE = "try:\n{}\nexcept:\n pass"


def catching_around(run: Run, file: str, line: int | None) -> Iterator[Place]:
    """The line in each recorded `try` and `with` around it in code of no function; where one was not recorded whole, as in a `try` that
    catches everything.
    """
    for start, text in _catching(run).get(file, ()):
        if line is None or not start < line <= start + text.count("\n"):
            continue
        whole = _in_function(text)
        row = line - start + 2
        unread = _in_function(_UNREADABLE.format("\n".join([" pass"] * (row - 2))))
        function = parse_function(whole, imports_of(file, run)) or parse_function(unread)
        if function is not None:
            yield Place(function.node, whole, imports=function.imports, row=row)


def _in_function(text: str) -> str:
    return "def module():\n" + textwrap.indent(text, " ")


@of_last_run
def _catching(run: Run) -> Mapping[str, list[tuple[int, str]]]:
    found: dict[str, list[tuple[int, str]]] = {}
    for (file, start), text in run.blocks.items():
        if text.startswith(("try:", "with ")):
            found.setdefault(file, []).append((start, text))
    return found


def said_later_is_lost(place: Place) -> bool:
    """Whether a message that is given where the graph ends can be another one, elsewhere, or none: behind the row something may raise, or
    the row is in a `with` that can turn streams and warnings elsewhere, or in a `try`.
    """
    for node in place.around(place.statement()):
        if isinstance(node, ast.Try):
            return True
        if isinstance(node, ast.With | ast.AsyncWith) and not _is_of_torch(node):
            return True
    return raises_behind(place) or any(isinstance(child, ast.Assert) for child in place.behind())


def raises_behind(place: Place) -> bool:
    """Whether the function raises an exception itself behind the row."""
    return any(isinstance(node, ast.Raise) for node in place.behind())


def _is_of_torch(node: ast.AST) -> bool:
    """Whether this is a `with` of torch's own contexts (`torch.no_grad()`), in which Dynamo can go on."""
    contexts = [one.context_expr for one in node.items] if isinstance(node, ast.With) else []
    return bool(contexts) and all(isinstance(one, ast.Call) and is_of_torch(dotted(one.func)) for one in contexts)


def written_later(place: Place) -> bool:
    """Whether a tensor that the row names may be another one, or have other values, behind it: something there writes, or gets one of them
    that is no function of torch's.
    """
    statement = place.statement() or ast.Pass()
    names = {name for node in ast.walk(statement) if isinstance(node, ast.Name | ast.Attribute) and (name := dotted(node)) is not None}
    inside = {id(child) for child in ast.walk(statement)}
    return any(_writes(place, descendant, names) for descendant in place.behind() if id(descendant) not in inside)


def _writes(place: Place, node: ast.AST, names: set[str]) -> bool:
    if isinstance(node, ast.AugAssign | ast.Delete):
        return True
    if isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load):
        return True
    if not isinstance(node, ast.Call):
        return False
    called = dotted(node.func) or ""
    last = node.func.attr if isinstance(node.func, ast.Attribute) else called
    if has_in_place_name(last) or any(keyword.arg in ("out", "inplace") for keyword in node.keywords):
        return True
    if is_torch_function(called) or called in ("print", "float", "int", "len", "range", "isinstance"):
        return False
    if isinstance(node.func, ast.Attribute) and place.is_tensor(node.func.value):
        return False
    given = (*node.args, *(item.value for item in node.keywords))
    return any(isinstance(child, ast.Name | ast.Attribute) and dotted(child) in names for each in given for child in ast.walk(each))
