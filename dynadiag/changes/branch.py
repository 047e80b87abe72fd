"""A branch on the value of a tensor, written without one: `torch.where` where both sides may be computed, else `torch.cond`, or a check.

One engine for both sides of the house: advice prints the rows where the recording shows that nothing else changes (`shows_same_values`,
`why_not_new`, `why_not_computed`), and `fix` tries them. The text is parsed, never run. What the function does not plainly show is refused:
each side may only assign names (or return), from expressions that `legality` knows to have no effect, and a name that one side assigns has
to be there already, or be assigned by the other.
"""

from __future__ import annotations

import ast
import copy
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property

from dynadiag.changes import legality
from dynadiag.changes.break_context import CHANGES, BreakContext, Said, Withheld, quoted, rewrite, withhold
from dynadiag.changes.condition import DRAWN, condition_of, if_expression, negated_test, split_python_part, tensor_condition, tensor_test
from dynadiag.changes.kinds import SKIPS, Kind
from dynadiag.changes.message import LOGGER, LOGGER_METHODS
from dynadiag.errors import EditError
from dynadiag.model.report import Advice
from dynadiag.source.effects import blocks_around, breaks_beside, catches, written_later
from dynadiag.source.imports import parse_canonical, spelled
from dynadiag.source.line import dotted, parse_line
from dynadiag.source.memory import has_other_name, is_new, kept_elsewhere, reads_of_this
from dynadiag.source.place import Place
from dynadiag.source.torch_names import is_torch_function
from dynadiag.source.tree import children_of, holds, names_in, nodes_in, nodes_of
from dynadiag.source.uses import draws, is_item

# A buffer that is registered anew on both sides: one assignment of the chosen value. What is made when it is needed is then made at the
# first call, and the buffer is a tensor of its own: that is what the change gives up.


@dataclass(frozen=True, kw_only=True)
class Switched:
    """The rows that take the place of the branch, and the attributes that may be bound to other tensors than before."""

    rows: tuple[str, ...]
    attributes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class _Registered:
    before: tuple[ast.stmt, ...]
    buffer: str
    value: ast.expr
    attributes: tuple[str, ...]


def switched(branch: ast.If, condition: ast.expr) -> Switched | None:
    """The branch as one assignment; None where its sides do not both register one buffer. Raises EditError where more is done there."""
    sides = [_registered(block) for block in (branch.body, branch.orelse)]
    first, other = sides
    if first is None or other is None or first.buffer != other.buffer:
        return None
    rows = [row for side in (first, other) for statement in side.before for row in ast.unparse(statement).splitlines()]
    rows.append(f"taken = {ast.unparse(condition)}")
    rows.append(f"self.{first.buffer} = torch.where(taken, {ast.unparse(first.value)}, {ast.unparse(other.value)})")
    names = dict.fromkeys((first.buffer, *first.attributes, *other.attributes))
    return Switched(rows=tuple(rows), attributes=tuple(names))


def _registered(block: Sequence[ast.stmt]) -> _Registered | None:
    last = block[-1] if block else None
    call = last.value if isinstance(last, ast.Expr) else None
    if not isinstance(call, ast.Call) or ast.unparse(call.func) != "self.register_buffer" or len(call.args) != 2:
        return None
    name, value = call.args
    if not isinstance(name, ast.Constant) or not str(name.value).isidentifier() or _attribute(value) is None:
        return None
    names = [_prepared(statement) for statement in block[:-1]]
    return _Registered(before=tuple(block[:-1]), buffer=str(name.value), value=value, attributes=(*names, _attribute(value) or ""))


def _prepared(node: ast.stmt) -> str:
    """The attribute that a statement makes where it is not there yet, or moves to a device."""
    if isinstance(node, ast.If) and len(node.body) == 1 and not node.orelse:
        made = node.body[0]
        target = made.targets[0] if isinstance(made, ast.Assign) else None
        first = target.elts[0] if isinstance(target, ast.Tuple) and target.elts else target
        name = None if first is None else _attribute(first)
        if name is not None and ast.unparse(node.test) == f"not hasattr(self, {name!r})":
            return name
    if isinstance(node, ast.Assign) and (name := _attribute(node.targets[0])) is not None:
        call = node.value
        if isinstance(call, ast.Call) and ast.unparse(call.func) == f"self.{name}.to" and len(node.targets) == 1:
            return name
    raise EditError(f"`{ast.unparse(node).splitlines()[0]}` does more than prepare the buffer")


def _attribute(node: ast.expr) -> str | None:
    return node.attr if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "self" else None


_LONGEST = 12
MASKED = "branch-masked"
_SETTINGS = frozenset(("dim", "dims", "axis", "keepdim", "keepdims", "dtype", "ord", "unbiased", "correction", "descending", "largest"))
"""Arguments of operators that are no tensors."""
_CONSTRUCTORS = ("torch.tensor", "torch.zeros", "torch.ones", "torch.full")


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
class Side:
    """One side: what it assigns, in order, and what it returns.

    `changed` are the names whose tensors it changes in place (`x += 1`), which the function has made; `writes` is the first such statement
    whose tensor something else has too.
    """

    steps: tuple[tuple[str, ast.expr], ...]
    returns: ast.expr | None
    changed: frozenset[str] = frozenset()
    writes: ast.stmt | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names that it assigns, each once."""
        return tuple(dict.fromkeys(name for name, _ in self.steps))

    @property
    def values(self) -> list[ast.expr]:
        """All that it computes."""
        return [value for _, value in self.steps] + ([self.returns] if self.returns is not None else [])

    @property
    def results(self) -> list[ast.expr]:
        """What it returns: the parts of a tuple."""
        if isinstance(self.returns, ast.Tuple) and not any(isinstance(part, ast.Starred) for part in self.returns.elts):
            return self.returns.elts
        return [] if self.returns is None else [self.returns]

    def value_of(self, name: str | int) -> ast.expr:
        """What a name has behind the side, or one of the results, in terms of what was there before it."""
        known: dict[str, ast.expr] = {}
        for target, value in self.steps:
            known[target] = _with_names(value, known)
        if isinstance(name, int):
            return _with_names(self.results[name], known)
        return known.get(name, ast.Name(name, ast.Load()))


@dataclass(frozen=True, kw_only=True)
class Branch:
    """An `if` as its function has it: what Python decides of its condition, the rest (`decides`) and that as a tensor of truth values, what
    both sides do, and the last statement that they take.
    """

    place: Place
    statement: ast.If
    python: ast.expr | None
    decides: ast.expr
    test: ast.expr
    then: Side
    other: Side
    last: ast.stmt

    @property
    def sides(self) -> tuple[Side, Side]:
        """Both sides."""
        return self.then, self.other

    @cached_property
    def condition(self) -> str:
        """The condition as a tensor: as the program writes it, where nothing changes."""
        return _condition_text(self.place, self.decides, self.test)

    @cached_property
    def outcomes(self) -> list[str]:
        """The names that either side gives a value and that are read behind the branch."""
        if self.then.returns is not None:
            return []
        names = dict.fromkeys((*self.then.names, *self.other.names))
        return [name for name in names if any(self._is_later(read) for read in self.place.reads(name))]

    @property
    def pairs(self) -> list[tuple[ast.expr, ast.expr]]:
        """What is chosen between: the values of each outcome, or the results that are not the same on both sides."""
        names: list[str | int] = [*self.outcomes] if self.then.returns is None else [*range(len(self.then.results))]
        found = [(self.then.value_of(name), self.other.value_of(name)) for name in names]
        return found if self.then.returns is None else [pair for pair in found if ast.dump(pair[0]) != ast.dump(pair[1])]

    def _is_later(self, read: ast.expr) -> bool:
        """Whether a name is read behind the branch; in a loop also before it."""
        begin, end = self.statement.lineno, self.last.end_lineno or self.last.lineno
        loops = any(isinstance(around, ast.For | ast.While) for around in self.place.around(self.place.parent(self.statement)))
        return not begin <= read.lineno <= end and (read.lineno > begin or loops)


def read_branch(place: Place, drop: ast.Call | None = None) -> Branch:
    """The branch on the row of a place. Raises EditError where its sides do more than to assign names, or return.

    `drop` is a cast around a read in its condition that need not stay.
    """
    statement = own_branch(place)
    python, decides = split_python_part(statement.test)
    test = _truth_of(place, decides, drop)
    then, other, last = _sides(place, statement)
    if (then.returns is None) != (other.returns is None):
        raise EditError("one side returns, and the other does not")
    if not then.names and then.returns is None and not other.names:
        raise EditError("the branch has no value")
    if len(then.results) != len(other.results):
        raise EditError("the sides return tuples of different lengths")
    if python is not None and (then.returns is not None or statement.orelse):
        raise EditError(f"the branch {'has an `else`' if statement.orelse else 'returns'}, and a part of its condition is no tensor")
    branch = Branch(place=place, statement=statement, python=python, decides=decides, test=test, then=then, other=other, last=last)
    _check_outcomes(branch)
    return branch


def own_branch(place: Place) -> ast.If:
    """The `if` that begins on the row. Raises EditError for another statement, an `elif`, and one with an `elif`."""
    statement = place.statement()
    if not isinstance(statement, ast.If) or place.rows[place.row - 1].lstrip().startswith("elif"):
        raise EditError("the line is no `if` of its own")
    if len(statement.orelse) == 1 and isinstance(statement.orelse[0], ast.If):
        raise EditError("the branch has several conditions")
    return statement


def _truth_of(place: Place, node: ast.expr, drop: ast.Call | None) -> ast.expr:
    """The condition as a tensor of truth values. Raises EditError for what may be a number, whose truth is another question."""
    test = tensor_test(node, drop)
    plain = isinstance(node, ast.Name | ast.Attribute | ast.Subscript)
    if test is None or (plain and test is not node and not place.is_single(node)):
        raise EditError(f"`{spelled(node)}` is not known to be true or false")
    return test


def _sides(place: Place, branch: ast.If) -> tuple[Side, Side, ast.stmt]:
    """Both sides, and the last statement that they take."""
    then = _side(place, branch.body)
    if then.returns is None or branch.orelse:
        return then, _side(place, branch.orelse), branch
    behind = place.next_statement(branch)
    if not isinstance(behind, ast.Return):
        raise EditError("one side returns, and the other does not at once")
    return then, _side(place, [behind]), behind


def _side(place: Place, block: Sequence[ast.stmt]) -> Side:
    steps: list[tuple[str, ast.expr]] = []
    returns: ast.expr | None = None
    changed: set[str] = set()
    writes: ast.stmt | None = None
    if len(block) > _LONGEST:
        raise EditError("a side of the branch is long")
    for statement in block:
        if returns is not None:
            raise EditError("a side continues after its return")
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1 and isinstance(statement.targets[0], ast.Name):
            steps.append((statement.targets[0].id, statement.value))
        elif isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name) and _is_made_here(place, statement):
            target = statement.target
            changed.add(target.id)
            writes = writes or (statement if has_other_name(place, target.id) else None)
            value = ast.BinOp(ast.Name(target.id, ast.Load()), statement.op, statement.value)
            steps.append((target.id, ast.copy_location(value, statement)))
        elif isinstance(statement, ast.Return) and statement.value is not None:
            returns = statement.value
        elif not isinstance(statement, ast.Pass):
            raise EditError(f"`{spelled(statement).splitlines()[0]}` does more than assign a name")
    return Side(steps=tuple(steps), returns=returns, changed=frozenset(changed), writes=writes)


def _is_made_here(place: Place, statement: ast.AugAssign) -> bool:
    """Whether `x += e` changes a tensor that the function has computed, which no view and no module gave it."""
    name = statement.target.id if isinstance(statement.target, ast.Name) else ""
    made = (
        isinstance(value, ast.BinOp | ast.UnaryOp) or (isinstance(value, ast.Call) and dotted(value.func) in _CONSTRUCTORS)
        for value in place.values(name)
    )
    return isinstance(statement.op, ast.Add | ast.Sub | ast.Mult) and place.is_local(name) and all(made)


# What has to hold for a selection to be the same as the branch.


def shows_same_values(branch: Branch) -> bool:
    """Whether the recording shows that a selection gives what the branch gives, in shape and type.

    One value of a tensor decides, and no part of the condition is there only if another one holds. The tensors are floats, so that
    arithmetic with numbers gives no other type on one side.
    """
    place, decides = branch.place, branch.decides
    if not place.floating or not place.asks_single(decides) or asks_in_turn(decides):
        return False
    return gives_same_values(place, branch.pairs) and any(place.is_tensor(node) for node in nodes_of(ast.expr, decides))


def gives_same_values(place: Place, pairs: Sequence[tuple[ast.expr, ast.expr]]) -> bool:
    """Whether both values of each pair are computed from one tensor element by element, and either of them may be a new tensor: where one
    is kept that may not be new, nothing is written later into what would be one.
    """
    if not pairs or not all(place.same_shape(*pair) for pair in pairs):
        return False
    return all(is_new(place, value) for pair in pairs for value in pair) or not written_later(place)


def asks_in_turn(test: ast.expr) -> bool:
    """Whether a part of the condition may only be there if another one holds: `m.any() and x[m].min() > 1`."""
    return isinstance(test, ast.BoolOp) and holds(test, ast.Subscript)


def why_not_new(branch: Branch) -> str | None:
    """Why a new tensor may not take the place of what a side gives: something else has that one too. None where it may."""
    written = next(filter(None, (side.writes for side in branch.sides)), None)
    if written is not None:
        return f"`{branch.place.text(written)}` writes into a tensor that something else has too"
    kept = (value for value in _kept(branch) if not _is_from_module(branch.place, value))
    return say_kept_elsewhere(branch.place, next(kept, None))


def say_replaced(branch: Branch) -> str:
    """What a selection changes for a tensor that a module gave and that the program goes on with: nothing, but for who writes into it."""
    names = dict.fromkeys(value.id for value in _kept(branch) if isinstance(value, ast.Name))
    said = (f"; `{name}` is then always a new tensor, which matters only to what writes into the one that a module gave" for name in names)
    return "".join(said)


def _kept(branch: Branch) -> Iterator[ast.expr]:
    """What a side gives that may not be new, and that goes on elsewhere."""
    place = branch.place
    groups = [(list(pair), list(pair)) for pair in branch.pairs]
    made = branch.then.changed | branch.other.changed
    if branch.then.returns is None:
        pairs = zip(branch.outcomes, branch.pairs, strict=True)
        groups = [(list(pair), reads_of_this(place, branch.statement, name)) for name, pair in pairs if name not in made]
    for values, uses in groups:
        yield from (value for value in reversed(values) if kept_elsewhere(place, (value,), uses) is not None)


def _is_from_module(place: Place, value: ast.expr) -> bool:
    """Whether this is a name of the function for what a module of its object gave (`h = self.layer(x)`), or what was computed, and which
    nothing else in the function has or writes into.
    """
    if not isinstance(value, ast.Name) or not place.is_assigned(value.id) or has_other_name(place, value.id) or place.is_written(value.id):
        return False
    return all(is_new(place, given) or _is_call_of_module(given) for given in place.values(value.id))


def _is_call_of_module(node: ast.expr) -> bool:
    """Whether this calls what the object holds with a tensor alone: `self.layer(x)`, `self.blocks[0](x)`."""
    owner = node.func if isinstance(node, ast.Call) and not node.keywords else None
    while isinstance(owner, ast.Subscript):
        owner = owner.value
    return owner is not None and (dotted(owner) or "").startswith("self.")


def say_kept_elsewhere(place: Place, kept: ast.expr | None) -> str | None:
    """The clause for a tensor that the program goes on with; None where there is none."""
    if kept is None:
        return None
    return (
        f"where the other side is chosen the program continues with the tensor `{spelled(kept)}` itself, which other code may have "
        "too; `torch.where` would make a new one"
    )


def why_not_asked(decides: ast.expr, test: ast.expr) -> str | None:
    """Why the condition may not be computed as a whole: of `a and b`, `b` is computed where `a` does not hold. None where it may."""
    in_turn = any(isinstance(node, ast.BoolOp) or (isinstance(node, ast.Compare) and len(node.ops) > 1) for node in nodes_in(decides))
    return legality.why_not_computed(test, gradients=False) if in_turn else legality.why_not_pure(test)


def why_not_computed(branch: Branch, *, gradients: bool) -> str | None:
    """Why the condition and both sides may not be computed each time; None where they may."""
    if (why := why_not_asked(branch.decides, branch.test)) is not None:
        return why
    return next(filter(None, (_why_not_side(side, gradients=gradients) for side in branch.sides)), None)


def _why_not_side(side: Side, *, gradients: bool) -> str | None:
    return next(filter(None, (legality.why_not_computed(value, gradients=gradients) for value in side.values)), None)


def why_not_differentiated(branch: Branch) -> str | None:
    """Why a gradient may become NaN where the program had none; a side without a value for a name keeps what that was before."""
    first, second = branch.sides
    values = [
        [*side.values, *(ast.Name(name, ast.Load()) for name in sorted(other.names) if name not in side.names)]
        for side, other in ((first, second), (second, first))
    ]
    return legality.why_not_differentiated(branch.place, branch.decides, *values)


# What `fix` tries.


def branch_at(text: str, row: int) -> Place:
    """The line at a row (from 1) of a module in its function. Raises EditError where that is none, or writes names of another scope."""
    tree, imports = parse_canonical(text)
    inside = [node for node in nodes_in(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    around = [node for node in inside if node.lineno <= row <= (node.end_lineno or 0)]
    if not around:
        raise EditError("the branch is in no function")
    function = max(around, key=lambda node: node.lineno)
    if holds(function, ast.Global, ast.Nonlocal):
        raise EditError("the function writes names of another scope")
    return Place(function, text, imports=imports, row=row)


def rewritten(place: Place, *, masked: bool = False) -> Rewritten:
    """The branch on the row of a place. Raises EditError where it cannot be written without one.

    `masked`: a side whose gradient could be NaN is computed from ones where it is not taken, so that no gradient flows through it there.
    """
    statement = own_branch(place)
    python, decides = split_python_part(statement.test)
    test = _truth_of(place, decides, drop := _cast_of_tensor(place, decides))
    if (why := why_not_asked(decides, test)) is not None:
        raise EditError(why)
    if isinstance(statement.body[0], ast.Raise) and not statement.orelse and python is None:
        return _checked(statement, test)
    if python is None and (found := switched(statement, test)) is not None:
        return _of_buffer(statement, found)
    return _without_branch(read_branch(place, drop), masked=masked)


def _cast_of_tensor(place: Place, test: ast.expr) -> ast.Call | None:
    """A `float(t)` in a condition, or an `int(t)` of integers, which need not stay."""
    casts = (call for call in nodes_of(ast.Call, test) if dotted(call.func) in ("float", "int", "bool") and len(call.args) == 1)
    return next((call for call in casts if place.is_tensor(call.args[0])), None)


def _without_branch(branch: Branch, *, masked: bool) -> Rewritten:
    then, other = branch.sides
    for value in (*then.values, *other.values):
        if (why := legality.why_not_pure(value)) is not None:
            raise EditError(why)
    if then.writes is not None or other.writes is not None:
        raise EditError(why_not_new(branch) or "")

    def made(slug: str, text: str, rows: Sequence[str], gradients_why: str | None = None) -> Rewritten:
        end = branch.last.end_lineno or branch.last.lineno
        lines = range(branch.statement.lineno, end + 1)
        return Rewritten(slug=slug, text=text, rows=lines, new=with_python_part(branch, rows), gradients_why=gradients_why)

    whys = [_why_not_side(then, gradients=flows) or _why_not_side(other, gradients=flows) for flows in (False, True)]
    differs = why_not_differentiated(branch)
    if masked:
        if whys[0] is not None or whys[1] is None or differs is not None:
            raise EditError(whys[0] or differs or "no gradient of a side can be NaN")
        given = [_given(side) if _why_not_side(side, gradients=True) is not None else () for side in branch.sides]
        return made(MASKED, "Compute both sides, each from ones where it is not taken", selected_rows(branch, given))
    if whys[0] is None:
        rows = selected_rows(branch)
        return made("branch-select", "Compute both sides of the branch and select on the device", rows, whys[1] or differs)
    # Seen on 2.15: the result then has no gradient function.
    eager = "`torch.cond` gives no gradient under the stance `force_eager`"
    return made("branch-cond", "Let the device take the branch (`torch.cond`)", list(_chosen(branch)), eager)


def _of_buffer(branch: ast.If, found: Switched) -> Rewritten:
    return Rewritten(
        slug="buffer-select",
        text="Select the value of the buffer on the device, instead of registering another one",
        rows=range(branch.lineno, (branch.end_lineno or branch.lineno) + 1),
        new=found.rows,
        gives_up="what is made when it is needed is made at the first call, and the buffer is bound to another tensor",
        attributes=found.attributes,
    )


def _checked(branch: ast.If, test: ast.expr) -> Rewritten:
    """`if tensor: raise` as a check in the graph."""
    raised = branch.body[0]
    call = raised.exc if isinstance(raised, ast.Raise) and isinstance(raised.exc, ast.Call) else None
    first = call.args[0] if call is not None and call.args else None
    message = first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else f"not {spelled(test)}"
    return Rewritten(
        slug="raise-check",
        text="Check the condition in the graph",
        rows=range(branch.lineno, (branch.end_lineno or branch.lineno) + 1),
        new=(f"torch._assert_async({spelled(negated_test(test))}, {message!r})",),
        gives_up="another exception is raised, and later",
    )


def _check_outcomes(branch: Branch) -> None:
    """Raise EditError where a name has no value on one side, or nobody reads what is assigned."""
    before = _assigned_before(branch)
    for name in branch.outcomes:
        if name not in before and not all(name in side.names for side in branch.sides):
            raise EditError(f"`{name}` has no value where the branch is not taken")
    writes = any(side.writes is not None for side in branch.sides)
    if not branch.outcomes and branch.then.returns is None and not writes:
        raise EditError("nothing that the branch assigns is read after it")


def _assigned_before(branch: Branch) -> set[str]:
    """Names that surely have a value where the branch begins: arguments, and what the blocks around it assign before."""
    arguments = branch.place.node.args
    names = {argument.arg for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
    inner: ast.AST | None = branch.statement
    while inner is not None and inner is not branch.place.node:
        outer = branch.place.parent(inner)
        blocks = [block for field in ("body", "orelse", "finalbody") if isinstance(block := getattr(outer, field, None), list)]
        for statement in next((block[: block.index(inner)] for block in blocks if inner in block), []):
            targets = statement.targets if isinstance(statement, ast.Assign) else []
            targets = [statement.target] if isinstance(statement, ast.AnnAssign) and statement.value is not None else targets
            names |= names_in(*targets)
        inner = outer
    return names


def _given(side: Side) -> tuple[str, ...]:
    """The names that a side is computed from. Raises EditError where it may be computed from something else too, such as an attribute."""
    names: dict[str, None] = {}
    made: set[str] = set()
    for value, target in zip(side.values, (*(name for name, _ in side.steps), ""), strict=False):
        left: list[ast.AST] = [value]
        while left:
            node = left.pop()
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                of_module = (dotted(node.func.value) or "") in ("torch", "torch.nn.functional", "F")
                named = [keyword.value for keyword in node.keywords if keyword.arg not in _SETTINGS]
                left += [*node.args, *named, *([] if of_module else [node.func.value])]
            elif isinstance(node, ast.Call | ast.Attribute | ast.Lambda):
                raise EditError(f"`{spelled(node)}` cannot be computed from ones")
            elif isinstance(node, ast.Name):
                names |= {} if node.id in made else {node.id: None}
            else:
                left += children_of(node)
        made.add(target)
    return tuple(sorted(names))


# The rows.


def negated_text(place: Place, decides: ast.expr, test: ast.expr) -> str:
    """The opposite of a condition."""
    negated = negated_test(test)
    doubled = len(ast.dump(negated)) < len(ast.dump(test))
    return spelled(negated) if doubled else f"torch.logical_not({_condition_text(place, decides, test)})"


def _condition_text(place: Place, decides: ast.expr, test: ast.expr) -> str:
    return text_of(place, decides) if ast.dump(test) == ast.dump(decides) else spelled(test)


def text_of(place: Place, node: ast.expr, names: Mapping[str, str] | None = None) -> str:
    """The expression as the program writes it, on one row, with other names for some."""
    renamed = any(inner.id in (names or {}) for inner in nodes_of(ast.Name, node))
    written = "" if renamed or isinstance(node, ast.Tuple | ast.GeneratorExp) else place.text(node)
    if written and "\n" not in written and not _is_made_up(node, written):
        return written
    return spelled(_Renamed(names or {}).visit(copy.deepcopy(node)))


def _is_made_up(node: ast.expr, written: str) -> bool:
    """Whether the text is not that of the node: of an `x += e` that was read as `x + e`."""
    try:
        return ast.dump(ast.parse(written, mode="eval").body) != ast.dump(node)
    except SyntaxError:
        return True


class _Renamed(ast.NodeTransformer):
    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(self._names.get(node.id, node.id), node.ctx)


class _Replaced(ast.NodeTransformer):
    def __init__(self, values: Mapping[str, ast.expr]) -> None:
        self._values = values

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self._values.get(node.id, node)


def _with_names(node: ast.expr, values: Mapping[str, ast.expr]) -> ast.expr:
    """The expression with the values of some names in their place; itself where it has none of them."""
    if not any(inner.id in values for inner in nodes_of(ast.Name, node)):
        return node
    replaced: ast.expr = _Replaced(values).visit(copy.deepcopy(node))
    return replaced


def with_python_part(branch: Branch, rows: Sequence[str]) -> tuple[str, ...]:
    """The rows below what Python decides of the condition."""
    if branch.python is None:
        return tuple(rows)
    return (f"if {text_of(branch.place, branch.python)}:", *(f"    {row}" for row in rows))


def selected_rows(branch: Branch, given: Sequence[Sequence[str]] = ((), ())) -> list[str]:
    """Both sides computed and the results selected; the names in `given` are ones for a side where it is not taken."""
    place, then = branch.place, branch.then
    alone = len(branch.outcomes) == 1 if then.returns is None else len(then.results) == 1
    if not any(given) and alone and all(len(side.steps) <= (then.returns is None) for side in branch.sides):
        values = [text_of(place, value) for value in branch.pairs[0]]
        selection = f"torch.where({branch.condition}, {values[0]}, {values[1]})"
        return [f"return {selection}" if then.returns is not None else f"{branch.outcomes[0]} = {selection}"]
    rows = [f"taken = {branch.condition}"]
    last: list[dict[str, str]] = []
    returned: list[list[str]] = []
    for side, ending, masks in zip(branch.sides, ("_if_true", "_if_false"), given, strict=True):
        ones = {name: f"{name}_for{ending[3:]}" for name in masks}
        for name, new in ones.items():
            chosen = (name, f"torch.ones_like({name})")[:: 1 if side is then else -1]
            rows.append(f"{new} = torch.where(taken, {', '.join(chosen)})")
        names: dict[str, str] = {}
        for name, value in side.steps:
            text = text_of(place, value, ones | names)
            names[name] = f"{name}{ending}"
            rows.append(f"{names[name]} = {text}")
        last.append(names)
        returned.append([text_of(place, result, ones | names) for result in side.results])
    rows += [f"{name} = torch.where(taken, {last[0].get(name, name)}, {last[1].get(name, name)})" for name in branch.outcomes]
    results = [value if value == other else f"torch.where(taken, {value}, {other})" for value, other in zip(*returned, strict=True)]
    return [*rows, f"return {', '.join(results)}"] if results else rows


def _chosen(branch: Branch) -> Iterator[str]:
    """A side that returns what it was given gives a copy: `torch.cond` refuses a result that shares memory with its inputs."""
    yield f"taken = {branch.condition}"
    for side, name in zip(branch.sides, ("if_true", "if_false"), strict=True):
        yield f"def {name}():"
        names: dict[str, str] = {}
        for target, value in side.steps:
            text = text_of(branch.place, value, names)
            names[target] = f"{target}_new"
            yield f"    {names[target]} = {text}"
        if side.returns is not None:
            text = text_of(branch.place, side.returns, names)
            yield f"    return {f'{text}.clone()' if isinstance(side.returns, ast.Name) and side.returns.id not in names else text}"
        else:
            yield f"    return ({', '.join(names.get(outcome, f'{outcome}.clone()') for outcome in branch.outcomes)},)"
    call = "torch.cond(taken, if_true, if_false)"
    yield f"return {call}" if branch.then.returns is not None else f"({', '.join(branch.outcomes)},) = {call}"


_BOTH = "both values are computed, and both get gradients: zeros where a value is not chosen"
_NO_CHOICE = (
    "the value of a tensor decides what Python does here; `torch.where` computes both values, which must then have one shape and both get "
    "gradients: the recording does not show that the results would be the same; where `dynadiag fix` can rewrite the branch, it compares "
    "them"
)
_WHOLE = "and a break in a loop, `try` or `with` leaves the whole function eager"
_UNKNOWN = "the value of a tensor decides what Python does here, and what follows from it is not plain in the source"
_NOT_RECORDED = "the value of a tensor decides what Python does here, and the line was not recorded"


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
        if not (decision and any(isinstance(branch, Advice) for branch in branches(replace(context, instead=(line, there))))):
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
    if test is None and place is not None and isinstance(place.statement(), ast.If) and not line.code.startswith("elif"):
        with suppress(EditError):  # its condition goes on below
            yield from _statement(context, place, None if drop is None else place.at(line, drop))
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
    if statement is None and context.place is None:
        return _NOT_RECORDED
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


_LATER = "another exception is raised, and later"
KINDS = (
    Kind(
        slugs=("if-where", "if-return-where"),
        applied="rewrite",
        does="both sides of a branch are computed, `torch.where` selects",
        asks="both sides consist of operations that are known to have no effect and not to raise; where gradients flow, none whose "
        "gradient "
        "can be NaN (division, roots, logarithms, norms, ...). The advice asks the same before it is given",
        selects=True,
    ),
    Kind(
        slugs=("branch-select",),
        applied="rule",
        does="the same for several statements, `or`, `not`, and `if x is not None and tensor:` (Python still decides the first part): each "
        "side assigns to names of its own, `torch.where` selects",
        asks="as above; a name that one side assigns is there before, or the other side assigns it too",
    ),
    Kind(
        slugs=(MASKED,),
        applied="rule",
        does="both sides are computed; one whose gradient can be NaN is computed from ones where it is not taken (`y_for_true = "
        "torch.where(taken, y, torch.ones_like(y))`), and `torch.where` then lets no gradient through it",
        asks="as for `branch-select`; the side reads names alone, no attributes. Tried where a gradient flows",
    ),
    Kind(
        slugs=("branch-cond",),
        applied="rule",
        does="`torch.cond` takes the branch on the device, where a side may raise if it is computed in vain",
        asks="both sides only assign or return, from operations without an effect; no gradients flow (with the stance `force_eager`, torch "
        "2.15 gives none)",
    ),
    Kind(slugs=("if-check", "assert-constant"), applied="rewrite", gives_up=_LATER),
    Kind(
        slugs=("raise-check",),
        applied="rule",
        does="`torch._assert_async` for `if tensor: raise`",
        gives_up=_LATER,
    ),
    Kind(
        slugs=("buffer-select",),
        applied="rule",
        does="for a buffer that is registered anew on both sides of a branch (LongRoPE); its values are compared all the same",
        gives_up="what is made when it is needed is made at the first call, and the buffer is bound to another tensor",
    ),
    Kind(slugs=("branch-guard",), applied="rewrite", gives_up=SKIPS, leaves_out=True),
)
