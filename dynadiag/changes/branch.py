"""A branch on the value of a tensor, written without one: `torch.where` where both sides may be computed, else `torch.cond`, or a check.

One engine for both sides of the house: advice prints the rows where the recording shows that nothing else changes (`shows_same_values`,
`why_not_new`, `why_not_computed`), and `fix` tries them. The text is parsed, never run. What the function does not plainly show is refused:
each side may only assign names (or return), from expressions that `legality` knows to have no effect, and a name that one side assigns has
to be there already, or be assigned by the other.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from dynadiag.changes import legality
from dynadiag.changes.buffers import Switched, switched
from dynadiag.changes.condition import negated_test, split_python_part, tensor_test
from dynadiag.errors import EditError
from dynadiag.source.effects import written_later
from dynadiag.source.imports import USUAL, make_canonical, spelled
from dynadiag.source.line import dotted
from dynadiag.source.memory import has_other_name, is_new, kept_elsewhere, reads_of_this
from dynadiag.source.place import Place
from dynadiag.source.tree import children_of, holds, names_in, nodes_in, nodes_of

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

    def value_of(self, name: str | None) -> ast.expr:
        """What a name has behind the side (None: what it returns), in terms of what was there before it."""
        known: dict[str, ast.expr] = {}
        for target, value in self.steps:
            known[target] = _with_names(value, known)
        if name is None and self.returns is not None:
            return _with_names(self.returns, known)
        return known.get(name or "", ast.Name(name or "", ast.Load()))


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
        """What is chosen between: the values of each outcome, or the two results."""
        names: list[str | None] = [None] if self.then.returns is not None else [*self.outcomes]
        return [(self.then.value_of(name), self.other.value_of(name)) for name in names]

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
    results = [side.returns for side in branch.sides if side.returns is not None]
    groups = [(results, results)] if results else []
    made = branch.then.changed | branch.other.changed
    if not results:
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
    tree = ast.parse(text)
    imports = make_canonical(tree, USUAL)
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
    test = _truth_of(place, decides, None)
    if (why := why_not_asked(decides, test)) is not None:
        raise EditError(why)
    if isinstance(statement.body[0], ast.Raise) and not statement.orelse and python is None:
        return _checked(statement, test)
    if python is None and (found := switched(statement, test)) is not None:
        return _of_buffer(statement, found)
    return _without_branch(read_branch(place), masked=masked)


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
    if not any(given) and len(branch.outcomes) <= 1 and all(len(side.steps) <= (then.returns is None) for side in branch.sides):
        values = [text_of(place, value) for value in branch.pairs[0]]
        selection = f"torch.where({branch.condition}, {values[0]}, {values[1]})"
        return [f"return {selection}" if then.returns is not None else f"{branch.outcomes[0]} = {selection}"]
    rows = [f"taken = {branch.condition}"]
    last: list[dict[str, str]] = []
    returned: list[str] = []
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
        returned += [] if side.returns is None else [text_of(place, side.returns, ones | names)]
    rows += [f"{name} = torch.where(taken, {last[0].get(name, name)}, {last[1].get(name, name)})" for name in branch.outcomes]
    return [*rows, *([f"return torch.where(taken, {returned[0]}, {returned[1]})"] if returned else [])]


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
