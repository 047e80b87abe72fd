"""Both sides of a branch computed and one selected, where the recording does not show all that has to hold: an idea, with what to check."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from dynadiag.changes import legality
from dynadiag.changes.branch import (
    Branch,
    Side,
    own_branch,
    read_branch,
    selected_rows,
    shows_same_values,
    text_of,
    why_not_computed,
    why_not_differentiated,
    why_not_new,
    with_python_part,
)
from dynadiag.changes.condition import tensor_test
from dynadiag.changes.defer_effect import is_effect
from dynadiag.errors import EditError
from dynadiag.facts.wording import listed
from dynadiag.model.report import Advice
from dynadiag.source.function import parse_function
from dynadiag.source.imports import spelled
from dynadiag.source.line import dotted
from dynadiag.source.place import Place
from dynadiag.source.torch_names import has_in_place_name, names_with
from dynadiag.source.tree import calls_in, nodes_of, reads_in

SELECT = "select-both"
SKIP = "select-iteration"
_ONCE_OR_OTHER = names_with(mark="random") | names_with(mark="casts") | {"next", "pop", "popleft"}


def both_sides(place: Place) -> Iterator[Advice]:
    """The `if` on the row of a place without a branch; nothing where its sides do more than give values, tell and keep something."""
    try:
        branch = own_branch(place)
        drop = cast_of_tensor(branch.test)
        if legality.why_not_pure(tensor_test(branch.test, drop) or branch.test) is not None:
            return  # such as `random.random() < 0.5`, which no tensor decides
        if skips_iteration(branch):
            yield from _without_continue(place, branch, drop)
            return
        apart, said = _without_effects(place, branch)
        found = read_branch(apart, drop)
        if gives_other_results(found):
            return
        conditions = list(_to_check(found))
        rows = with_python_part(found, _rows(found))
    except EditError:
        return
    last = branch if found.last is found.statement else found.last
    yield Advice(
        slug=SELECT,
        text=f"Compute both sides each time and select on the device. {said}{_checks(conditions)}",
        before=place.written(branch, branch) if last is branch else place.written(branch, place.next_statement(branch) or branch),
        after="\n".join(rows),
        how_sure="idea",
    )


def _without_effects(place: Place, branch: ast.If) -> tuple[Place, str]:
    """The function without what the sides only tell or keep, and where that goes; the same function where they do nothing of the kind."""
    effects = [one for one in (*branch.body, *branch.orelse) if is_effect(one, place)]
    if not effects or len(effects) == len((*branch.body, *branch.orelse)):
        return place, ""
    rows = list(place.rows)
    for effect in effects:
        for row in range(effect.lineno - 1, effect.end_lineno or effect.lineno):
            rows[row] = ""
    text = "\n".join(rows)
    function = parse_function(text, place.imports)
    if function is None:
        return place, ""
    shown = listed([f"`{place.text(one).splitlines()[0]}`" for one in effects])
    return replace(place, node=function.node, code=text), f"Do {shown} outside of the compiled function, by the condition that it returns. "


def gives_other_results(branch: Branch) -> bool:
    """Whether the source shows that both sides computed give other results: a side draws numbers, takes the next of an iterator or gives
    another type, or what a side keeps is written in place behind the branch.
    """
    calls = [call for side in branch.sides for value in side.values for call in calls_in(value)]
    if any((dotted(call.func) or spelled(call.func)).rpartition(".")[2] in _ONCE_OR_OTHER for call in calls):
        return True
    kept = {value.id for side in branch.sides for value in side.values if isinstance(value, ast.Name)} | {
        name for side in branch.sides for name in side.names
    }
    written = (node.func for node in branch.place.behind() if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute))
    return any(has_in_place_name(method.attr) and isinstance(method.value, ast.Name) and method.value.id in kept for method in written)


def cast_of_tensor(test: ast.expr) -> ast.Call | None:
    """A `float(t)` in a condition that need not stay."""
    return next((call for call in calls_in(test) if dotted(call.func) in ("float", "bool") and len(call.args) == 1), None)


def _rows(branch: Branch) -> list[str]:
    """The rows; where a gradient flows, a side whose gradient can be NaN gets ones where it is not taken, if it reads names alone."""
    given: list[tuple[str, ...]] = [(), ()]
    if not branch.place.no_gradient and not list(_unknown_calls(branch)):
        given = [_masked(branch.place, side) for side in branch.sides]
    return selected_rows(branch, given)


def _masked(place: Place, side: Side) -> tuple[str, ...]:
    """The tensors that a side is computed from, where its gradient can be NaN and it reads no attributes."""
    if all(legality.why_not_computed(value, gradients=True) is None for value in side.values):
        return ()
    attributes = [node for value in side.values for node in nodes_of(ast.Attribute, value) if dotted(node) is not None]
    called = {id(call.func) for value in side.values for call in calls_in(value)}
    names = sorted(reads_in(*side.values) - set(side.names))
    return (
        ()
        if any(id(node) not in called for node in attributes)
        else tuple(name for name in names if place.is_tensor(ast.Name(name, ast.Load())))
    )


def _unknown_calls(branch: Branch) -> Iterator[str]:
    """What a side calls that may do more than compute."""
    found = (call for side in branch.sides for value in side.values for call in calls_in(value))
    yield from dict.fromkeys(f"`{spelled(call)}`" for call in found if legality.why_not_pure(call) is not None)


def _to_check(branch: Branch) -> Iterator[str]:
    unknown = list(_unknown_calls(branch))
    if unknown:
        yield f"that {listed(unknown)} may run each time (no state, random numbers or errors of its own)"
    elif (why := why_not_computed(branch, gradients=False)) is not None:
        yield f"what happens where a side is computed in vain: {why}"
    if not shows_same_values(branch):
        yield "that both values have one shape and one type"
    flows = not unknown and not branch.place.no_gradient
    if flows and (why := why_not_computed(branch, gradients=True) or why_not_differentiated(branch)) is not None:
        yield f"the gradients, where some flow: {why}"
    if why_not_new(branch) is not None:
        yield "that nothing writes later into the tensor, which is then a new one"


def _checks(conditions: list[str]) -> str:
    return f"Check {'; '.join(conditions)}" if conditions else "Compare the results"


# `if t.sum() == 0: continue` in a loop that sums up.


def skips_iteration(branch: ast.If) -> bool:
    """Whether the branch does nothing but to go on with the next iteration."""
    return len(branch.body) == 1 and isinstance(branch.body[0], ast.Continue) and not branch.orelse


def _without_continue(place: Place, branch: ast.If, drop: ast.Call | None) -> Iterator[Advice]:
    """What the rest of the iteration gives to names is selected instead. Raises EditError where the rest does more."""
    test, block = tensor_test(branch.test, drop), getattr(place.parent(branch), "body", [])
    rest = block[block.index(branch) + 1 :] if branch in block else []
    steps = [step for statement in rest if (step := _step(statement)) is not None]
    if test is None or not rest or len(steps) < len(rest):
        raise EditError("the rest of the iteration does more than assign names")
    rows, known = [f"skipped = {spelled(test)}"], set()
    numbers = []
    for name, value in steps:
        carried = not place.is_local(name) or any(
            read.lineno <= branch.lineno or read.lineno > (rest[-1].end_lineno or 0) for read in place.reads(name)
        )
        text = text_of(place, value)
        rows.append(f"{name} = torch.where(skipped, {name}, {text})" if carried and name not in known else f"{name} = {text}")
        known.add(name)
        if carried and not place.is_tensor(value):
            numbers.append(name)
    said = "Compute every iteration and keep the old values where it would have been skipped"
    later = [change for name in numbers for change in _bounds(place, name, rest[-1].end_lineno or 0)]
    if numbers:
        are = "is then a tensor" if len(numbers) == 1 else "are then tensors"
        said += f". {listed([f'`{name}`' for name in numbers])} {are}, which what reads it has to take"
        said += "".join(f": write `{new}` for `{old}`" for old, new in later)
    yield Advice(
        slug=SKIP,
        text=f"{said}. Check that a skipped iteration may be computed: no error, and no gradient that is not finite",
        before=place.written(branch, rest[-1]),
        after="\n".join(rows),
        how_sure="idea",
    )


def _step(statement: ast.stmt) -> tuple[str, ast.expr] | None:
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1 and isinstance(statement.targets[0], ast.Name):
        return statement.targets[0].id, statement.value
    if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
        value = ast.BinOp(ast.Name(statement.target.id, ast.Load()), statement.op, statement.value)
        return statement.target.id, ast.copy_location(value, statement)
    return None


def _bounds(place: Place, name: str, behind: int) -> Iterator[tuple[str, str]]:
    """Python's `max(n, 1)` behind the loop, which decides by a value, as a clamp."""
    for read in place.reads(name):
        call = place.parent(read)
        if isinstance(call, ast.Call) and dotted(call.func) in ("max", "min") and len(call.args) == 2 and read.lineno > behind:
            (other,) = (item for item in call.args if item is not read)
            yield place.text(call), f"torch.clamp({name}, {'min' if dotted(call.func) == 'max' else 'max'}={place.text(other)})"
