"""A branch on the value of a tensor, written without one: `torch.where` where both sides may be computed, else `torch.cond`.

The text is parsed, never run. What the function does not plainly show is refused: each side may only assign names (or return), from
expressions that `legality` knows to have no effect, and a name that one side assigns has to be there already, or be assigned by the other.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dynadiag.changes import legality
from dynadiag.changes.buffers import Switched, switched
from dynadiag.changes.condition import split_python_part, tensor_test
from dynadiag.changes.edits import EditError
from dynadiag.source.place import Place

_LONGEST = 12
MASKED = "branch-masked"
_SETTINGS = frozenset(("dim", "dims", "axis", "keepdim", "keepdims", "dtype", "ord", "unbiased", "correction", "descending", "largest"))
"""Arguments of operators that are no tensors."""


@dataclass(frozen=True, kw_only=True)
class Rewritten:
    """The rows that take the place of a branch and of `rows` lines (from 1, the end not included), without indentation.

    `gradients_why` is why they may not be tried where gradients flow; `gives_up` what else changes (None: nothing); `attributes` may be
    bound to other tensors than before, whose values are the same.
    """

    slug: str
    text: str
    rows: range
    new: tuple[str, ...]
    gradients_why: str | None = None
    gives_up: str | None = None
    attributes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class _Side:
    """One side: what it assigns, in order, and what it returns."""

    steps: tuple[tuple[str, ast.expr], ...]
    returns: ast.expr | None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for name, _ in self.steps))

    @property
    def values(self) -> list[ast.expr]:
        return [value for _, value in self.steps] + ([self.returns] if self.returns is not None else [])


def rewritten(tree: ast.Module, row: int, *, masked: bool = False) -> Rewritten:
    """The branch at a row (from 1) of a module. Raises EditError where it cannot be written without one.

    `masked`: a side whose gradient could be NaN is computed from ones where it is not taken, so that no gradient flows through it there.
    """
    blocks = _blocks_to(tree, row)
    branch = blocks[-1][0][blocks[-1][1]] if blocks else None
    if not isinstance(branch, ast.If):
        raise EditError("the line is no `if` of its own")
    if branch.orelse and isinstance(branch.orelse[0], ast.If) and len(branch.orelse) == 1:
        raise EditError("the branch has several conditions")
    plain, rest = split_python_part(branch.test)
    condition = _tensor_test(rest)
    why = legality.why_not_computed(condition, gradients=False) if isinstance(rest, ast.BoolOp) else legality.why_not_pure(condition)
    if why is not None:  # of `a and b`, `b` is computed where `a` does not hold
        raise EditError(why)
    if isinstance(branch.body[0], ast.Raise) and not branch.orelse and plain is None:
        return _checked(branch, condition)
    if plain is None and (found := switched(branch, condition)) is not None:
        return _of_buffer(branch, found)
    return _without_branch(tree, branch, blocks, plain, condition, masked=masked)


def _without_branch(
    tree: ast.Module,
    branch: ast.If,
    blocks: Sequence[tuple[list[ast.stmt], int]],
    plain: ast.expr | None,
    condition: ast.expr,
    *,
    masked: bool,
) -> Rewritten:
    block, at = blocks[-1]
    then, other, end = _sides(branch, block[at + 1 :])
    _check_pure(then, other)
    if plain is not None and (then.returns is not None or branch.orelse):
        raise EditError(f"the branch {'has an `else`' if branch.orelse else 'returns'}, and a part of its condition is no tensor")
    function = _function(tree, branch.lineno)
    loads = (node for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load))
    outcomes = _outcomes(then, other, _assigned_before(function, blocks), {load.id for load in loads if _is_later(load, branch, function)})

    def made(slug: str, text: str, rows: Sequence[str], gradients_why: str | None = None) -> Rewritten:
        new = rows if plain is None else [f"if {ast.unparse(plain)}:", *(f"    {row}" for row in rows)]
        return Rewritten(slug=slug, text=text, rows=range(branch.lineno, end + 1), new=tuple(new), gradients_why=gradients_why)

    whys = [_why_not_where(then, gradients=literal) or _why_not_where(other, gradients=literal) for literal in (False, True)]
    values = [
        [*item.values, *(ast.Name(name, ast.Load()) for name in each.names if name not in item.names)]
        for item, each in ((then, other), (other, then))
    ]
    differs = legality.why_not_differentiated(Place(function, "", row=branch.lineno), branch.test, *values)
    if masked:
        if whys[0] is not None or whys[1] is None or differs is not None:
            raise EditError(whys[0] or differs or "no gradient of a side can be NaN")
        given = [_given(element) if _why_not_where(element, gradients=True) is not None else () for element in (then, other)]
        return made(MASKED, "Compute both sides, each from ones where it is not taken", _selected(condition, then, other, outcomes, given))
    whys[1] = whys[1] or differs
    if whys[0] is None:
        rows = _selected(condition, then, other, outcomes)
        return made("branch-select", "Compute both sides of the branch and select on the device", rows, whys[1])
    # Seen on 2.15: the result then has no gradient function.
    eager = "`torch.cond` gives no gradient under the stance `force_eager`"
    return made("branch-cond", "Let the device take the branch (`torch.cond`)", list(_chosen(condition, then, other, outcomes)), eager)


def _of_buffer(branch: ast.If, found: Switched) -> Rewritten:
    return Rewritten(
        slug="buffer-select",
        text="Select the value of the buffer on the device, instead of registering another one",
        rows=range(branch.lineno, (branch.end_lineno or branch.lineno) + 1),
        new=found.rows,
        gives_up="what is made when it is needed is made at the first call, and the buffer is bound to another tensor",
        attributes=found.attributes,
    )


def _checked(branch: ast.If, condition: ast.expr) -> Rewritten:
    """`if tensor: raise` as a check in the graph."""
    raised = branch.body[0]
    call = raised.exc if isinstance(raised, ast.Raise) and isinstance(raised.exc, ast.Call) else None
    first = call.args[0] if call is not None and call.args else None
    message = first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else f"not {ast.unparse(condition)}"
    return Rewritten(
        slug="raise-check",
        text="Check the condition in the graph",
        rows=range(branch.lineno, (branch.end_lineno or branch.lineno) + 1),
        new=(f"torch._assert_async(torch.logical_not({ast.unparse(condition)}), {message!r})",),
        gives_up="another exception is raised, and later",
    )


def _blocks_to(tree: ast.Module, row: int) -> list[tuple[list[ast.stmt], int]]:
    """The blocks from the module down to the `if` of this row, and where each goes on."""
    found: list[tuple[list[ast.stmt], int]] = []
    block: list[ast.stmt] = tree.body
    while True:
        at = next(
            (at for at, statement in enumerate(block) if _first_row(statement) <= row <= (statement.end_lineno or statement.lineno)), None
        )
        if at is None:
            return found
        found.append((block, at))
        node = block[at]
        if isinstance(node, ast.If) and node.lineno == row:
            return found
        inside = [getattr(node, name) for name in ("body", "orelse", "finalbody") if isinstance(getattr(node, name, None), list)]
        inside += [item.body for item in getattr(node, "handlers", ())]
        deeper = next((element for element in inside if element and _first_row(element[0]) <= row <= (element[-1].end_lineno or 0)), None)
        if deeper is None:
            return found
        block = deeper


def _first_row(node: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])


def _function(tree: ast.Module, row: int) -> ast.FunctionDef | ast.AsyncFunctionDef:
    inside = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    around = [item for item in inside if item.lineno <= row <= (item.end_lineno or 0)]
    if not around:
        raise EditError("the branch is in no function")
    function = max(around, key=lambda element: element.lineno)
    if any(isinstance(child, ast.Global | ast.Nonlocal) for child in ast.walk(function)):
        raise EditError("the function writes names of another scope")
    return function


def _tensor_test(node: ast.expr) -> ast.expr:
    """The condition as a tensor of truth values. Raises EditError for what may be a number, whose truth is another question."""
    test = tensor_test(node)
    if test is None or (isinstance(node, ast.Name | ast.Attribute | ast.Subscript) and test is not node):
        raise EditError(f"`{ast.unparse(node)}` is not known to be true or false")
    return test


def _sides(branch: ast.If, behind: Sequence[ast.stmt]) -> tuple[_Side, _Side, int]:
    """Both sides, and the last row that they take."""
    then = _side(branch.body)
    if then.returns is None:
        return then, _side(branch.orelse), branch.end_lineno or branch.lineno
    if branch.orelse:
        other, end = _side(branch.orelse), branch.end_lineno or branch.lineno
    elif behind and isinstance(behind[0], ast.Return):
        other, end = _side(behind[:1]), behind[0].end_lineno or behind[0].lineno
    else:
        raise EditError("one side returns, and the other does not at once")
    return then, other, end


def _side(block: Sequence[ast.stmt]) -> _Side:
    steps: list[tuple[str, ast.expr]] = []
    returns = None
    if len(block) > _LONGEST:
        raise EditError("a side of the branch is long")
    for statement in block:
        if returns is not None:
            raise EditError("a side continues after its return")
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1 and isinstance(statement.targets[0], ast.Name):
            steps.append((statement.targets[0].id, statement.value))
        elif isinstance(statement, ast.Return) and statement.value is not None:
            returns = statement.value
        elif not isinstance(statement, ast.Pass):
            raise EditError(f"`{ast.unparse(statement).splitlines()[0]}` does more than assign a name")
    return _Side(steps=tuple(steps), returns=returns)


def _check_pure(then: _Side, other: _Side) -> None:
    """Raise EditError unless both sides are known to have no effect."""
    if (then.returns is None) != (other.returns is None):
        raise EditError("one side returns, and the other does not")
    if not then.names and then.returns is None and not other.names:
        raise EditError("the branch has no value")
    for expression in (*then.values, *other.values):
        why = legality.why_not_pure(expression)
        if why is not None:
            raise EditError(why)


def _why_not_where(side: _Side, *, gradients: bool) -> str | None:
    whys = (legality.why_not_computed(expression, gradients=gradients) for expression in side.values)
    return next((why for why in whys if why is not None), None)


def _given(side: _Side) -> tuple[str, ...]:
    """The names that a side is computed from. Raises EditError where it may be computed from something else too, such as an attribute."""
    names: dict[str, None] = {}
    made: set[str] = set()
    for value, target in zip(side.values, (*(name for name, _ in side.steps), ""), strict=False):
        left: list[ast.AST] = [value]
        while left:
            node = left.pop()
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                of_module = ast.unparse(node.func.value) in ("torch", "F", "torch.nn.functional")
                named = [keyword.value for keyword in node.keywords if keyword.arg not in _SETTINGS]
                left += [*node.args, *named, *([] if of_module else [node.func.value])]
            elif isinstance(node, ast.Call | ast.Attribute | ast.Lambda):
                raise EditError(f"`{ast.unparse(node)}` cannot be computed from ones")
            elif isinstance(node, ast.Name):
                names |= {} if node.id in made else {node.id: None}
            else:
                left += ast.iter_child_nodes(node)
        made.add(target)
    return tuple(sorted(names))


def _assigned_before(function: ast.FunctionDef | ast.AsyncFunctionDef, blocks: Sequence[tuple[list[ast.stmt], int]]) -> set[str]:
    """Names that surely have a value where the branch begins: arguments, and what the blocks around it assign before."""
    arguments = function.args
    names = {posonlyarg.arg for posonlyarg in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
    for block, at in blocks:
        for statement in block[:at]:
            targets = (
                statement.targets
                if isinstance(statement, ast.Assign)
                else [statement.target]
                if isinstance(statement, ast.AnnAssign) and statement.value
                else []
            )
            if function.lineno <= statement.lineno <= (function.end_lineno or 0):
                names |= {name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)}
    return names


def _is_later(name: ast.Name, branch: ast.If, function: ast.AST) -> bool:
    """Whether a name is read behind the branch; in a loop also before it."""
    inside = branch.lineno <= name.lineno <= (branch.end_lineno or 0)
    loops = [
        node
        for node in ast.walk(function)
        if isinstance(node, ast.For | ast.While) and node.lineno < branch.lineno <= (node.end_lineno or 0)
    ]
    return not inside and (name.lineno > branch.lineno or bool(loops))


class _Renamed(ast.NodeTransformer):
    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(self._names.get(node.id, node.id), node.ctx)


def _text(node: ast.expr, names: Mapping[str, str]) -> str:
    return ast.unparse(_Renamed(names).visit(copy.deepcopy(node)))


def _outcomes(then: _Side, other: _Side, there: set[str], later: set[str]) -> list[str]:
    """The names that are read later; raises EditError where one has no value on one side."""
    found = [name for name in dict.fromkeys((*then.names, *other.names)) if name in later]
    for name in found:
        if name not in there and not (name in then.names and name in other.names):
            raise EditError(f"`{name}` has no value where the branch is not taken")
    if not found and then.returns is None:
        raise EditError("nothing that the branch assigns is read after it")
    return found


def _selected(
    condition: ast.expr, then: _Side, other: _Side, outcomes: Sequence[str], given: Sequence[Sequence[str]] = ((), ())
) -> list[str]:
    """The rows; the names in `given` are ones for a side where it is not taken."""
    if not any(given) and len(then.steps) <= 1 and len(other.steps) <= 1 and len(outcomes) <= 1:
        name = outcomes[0] if outcomes else None
        values = [_one_value(side, name) for side in (then, other)]
        where = f"torch.where({ast.unparse(condition)}, {values[0]}, {values[1]})"
        if then.returns is not None and not then.steps and not other.steps:
            return [f"return {where}"]
        if then.returns is None:
            return [f"{name} = {where}"]
    rows = [f"taken = {ast.unparse(condition)}"]
    last: list[dict[str, str]] = []
    returned: list[str | None] = []
    for side, ending, masks in zip((then, other), ("_if_true", "_if_false"), given, strict=True):
        ones = {name: f"{name}_for{ending[3:]}" for name in masks}
        for name, new in ones.items():
            chosen = (name, f"torch.ones_like({name})")[:: 1 if side is then else -1]
            rows.append(f"{new} = torch.where(taken, {', '.join(chosen)})")
        names: dict[str, str] = {}
        for name, value in side.steps:
            text = _text(value, ones | names)
            names[name] = f"{name}{ending}"
            rows.append(f"{names[name]} = {text}")
        last.append(names)
        returned.append(None if side.returns is None else _text(side.returns, ones | names))
    rows += [f"{name} = torch.where(taken, {last[0].get(name, name)}, {last[1].get(name, name)})" for name in outcomes]
    if None not in returned:
        rows.append(f"return torch.where(taken, {returned[0]}, {returned[1]})")
    return rows


def _one_value(side: _Side, name: str | None) -> str:
    value = side.returns if side.returns is not None else dict(side.steps).get(name or "")
    return name or "" if value is None else ast.unparse(value)


def _chosen(condition: ast.expr, then: _Side, other: _Side, outcomes: Sequence[str]) -> Iterator[str]:
    """A side that returns what it was given gives a copy: `torch.cond` refuses a result that shares memory with its inputs."""
    yield f"taken = {ast.unparse(condition)}"
    for side, name in ((then, "if_true"), (other, "if_false")):
        yield f"def {name}():"
        names: dict[str, str] = {}
        for target, value in side.steps:
            text = _text(value, names)
            names[target] = f"{target}_new"
            yield f"    {names[target]} = {text}"
        if side.returns is not None:
            text = _text(side.returns, names)
            yield f"    return {f'{text}.clone()' if isinstance(side.returns, ast.Name) and side.returns.id not in names else text}"
        else:
            yield f"    return ({', '.join(names.get(outcome, f'{outcome}.clone()') for outcome in outcomes)},)"
    call = "torch.cond(taken, if_true, if_false)"
    yield f"return {call}" if then.returns is not None else f"({', '.join(outcomes)},) = {call}"
