"""A statement that only tells or keeps something, moved behind the call of the compiled function, which returns what it needs: an idea."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dynadiag.changes.compiled_function import CompiledFunction
from dynadiag.facts.wording import listed, short_place
from dynadiag.model.report import Advice
from dynadiag.source.effects import drives_training
from dynadiag.source.line import dotted
from dynadiag.source.place import Place
from dynadiag.source.torch_names import IN_PLACE, has_in_place_name
from dynadiag.source.tree import calls_in, nodes_of, reads_in, written_names

DEFER = "defer-effect"
_MOST_NAMES = 4


def defer_effect(compiled: CompiledFunction) -> Iterator[Advice]:
    """Move the statement of the compiled function that leads to the break behind its call, where nothing later in it reads what that does;
    those behind it that do the same to the same objects go with it.
    """
    place = compiled.place
    first, returned = effect_at(place), _returned(place)
    if first is None or returned is None or first not in place.node.body:
        return
    moved = _together(place, first)
    names = sorted({name for statement in moved for name in _local_reads(place, statement)})
    if len(names) > _MOST_NAMES or _is_read(place, moved):
        return
    results = _result_names(returned)
    more = [name for name in names if name not in results]
    what = f"In `{compiled.name}` delete {'it' if len(moved) == 1 else 'these'}"
    if more:
        value = "" if returned.value is None else place.text(returned.value)
        instead = f" for `{place.text(returned)}`" if returned.value is not None else " at its end"
        what += f", write `return {', '.join(filter(None, (value, *more)))}`{instead}, and unpack it at every call"
    where = "" if compiled.call is None else f" ({short_place(compiled.call)})"
    rows = "\n".join(place.written(statement, statement) for statement in moved)
    before, after = _at_call(compiled, results, more, rows)
    shown = listed([f"`{row.strip()}`" for row in rows.splitlines()], limit=4)
    yield Advice(
        slug=DEFER,
        text=f"Do {shown} behind the call{where}: nothing later in the function reads what "
        f"{'it does' if len(moved) == 1 else 'they do'}. {what}",
        before=before,
        after=after,
        how_sure="idea",
    )


def _together(place: Place, first: ast.stmt) -> list[ast.stmt]:
    """The effect and those behind it that touch what it changes, in their order."""
    body = place.node.body
    moved = [first]
    for statement in body[body.index(first) + 1 :]:
        touched = {name for one in moved for name in _changed(place, one)}
        if is_effect(statement, place) and touched & {dotted(node) for node in nodes_of(ast.expr, statement)}:
            moved.append(statement)
    return moved


def _changed(place: Place, statement: ast.stmt) -> set[str]:
    """What an effect may change: what it stores into, and the objects whose methods it calls, but for tensors that only compute."""
    called = [call.func for call in calls_in(statement) if isinstance(call.func, ast.Attribute)]
    computes = [place.is_tensor(method.value) and not has_in_place_name(method.attr) for method in called]
    names = {dotted(method.value) for method, only in zip(called, computes, strict=True) if not only}
    return written_names([statement]) | {name for name in names if name is not None and name not in ("self", "torch")}


def effect_at(place: Place) -> ast.stmt | None:
    """The outermost statement around a row that only tells or keeps something: a call whose value nobody uses, what it stores elsewhere."""
    around = [node for node in place.node.body if node.lineno <= place.row <= (node.end_lineno or 0)]
    return next((node for node in around if is_effect(node, place)), None)


def is_effect(node: ast.stmt, place: Place) -> bool:
    """Whether the statement computes nothing for the rest of the function."""
    if isinstance(node, ast.If | ast.For | ast.With):
        return all(is_effect(one, place) or isinstance(one, ast.Pass) for one in (*node.body, *getattr(node, "orelse", ())))
    if drives_training(node):
        return False
    if isinstance(node, ast.Expr):
        call = node.value
        in_place = (
            isinstance(call, ast.Call)
            and isinstance(call.func, ast.Attribute)
            and (call.func.attr in IN_PLACE or has_in_place_name(call.func.attr))
        )
        return isinstance(call, ast.Call) and not in_place
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AugAssign) else []
    parts = [part for target in targets for part in (target.elts if isinstance(target, ast.Tuple) else [target])]
    return bool(parts) and all(isinstance(part, ast.Attribute | ast.Subscript) and not _is_made_here(part, place) for part in parts)


def _is_made_here(part: ast.expr, place: Place) -> bool:
    """Whether what is stored into is the function's own."""
    while isinstance(part, ast.Attribute | ast.Subscript):
        part = part.value
    return not isinstance(part, ast.Name) or place.is_local(part.id)


def _local_reads(place: Place, statement: ast.stmt) -> set[str]:
    """The names of the function's own that the statement reads and does not bind itself."""
    own = {node.id for node in nodes_of(ast.Name, statement) if isinstance(node.ctx, ast.Store)}
    bound = set(place.index.stores)
    return {name for name in reads_in(statement) if name in bound and name not in own}


def _is_read(place: Place, moved: list[ast.stmt]) -> bool:
    """Whether something behind the first one that stays reads what they change, or changes what they read."""
    body = place.node.body
    stay = [statement for statement in body[body.index(moved[0]) + 1 :] if statement not in moved]
    changed = {name for statement in moved for name in _changed(place, statement)}
    named = {dotted(node) for node in nodes_of(ast.expr, *stay)}
    read = {dotted(node) for node in nodes_of(ast.expr, *moved)}
    return bool(changed & named) or bool(written_names(stay) & read)


def _returned(place: Place) -> ast.Return | None:
    """The one `return` of the function, at its end; a made one where it has none."""
    found = place.nodes(ast.Return)
    if not found:
        return ast.Return(None)
    last = place.node.body[-1]
    return last if len(found) == 1 and isinstance(last, ast.Return) else None


def _result_names(returned: ast.Return) -> list[str]:
    """The names that are returned already, in their order; empty for what is no name (`loss.detach()`)."""
    parts = returned.value.elts if isinstance(returned.value, ast.Tuple) else [returned.value]
    return [dotted(part) or "" for part in parts if part is not None]


def _at_call(compiled: CompiledFunction, results: list[str], more: list[str], rows: str) -> tuple[str | None, str | None]:
    """The line of the call and the statements behind it, with the names that all has there; None where these are not plain to see."""
    statement, entering, code = compiled.call_line.statement, compiled.entering, ast.parse(rows)
    if (
        entering is None
        or not compiled.call_line.complete
        or not isinstance(statement, ast.Assign | ast.Expr)
        or statement.value is not entering
    ):
        return None, None
    target = statement.targets[0] if isinstance(statement, ast.Assign) else None
    kept = _kept(target, results)
    if kept is None or (isinstance(statement, ast.Assign) and len(statement.targets) != 1) or (more and len(results) > 1):
        return None, None
    new = {name: name for name in more} | {name: at for name, at in zip(results, kept, strict=True) if name}
    for name in sorted({node.id for node in nodes_of(ast.Name, code)} - set(new)):
        if name == "self" or name in compiled.place.parameters:
            outside = compiled.named_outside(name)
            if outside is None:
                return None, None
            new[name] = outside
    for node in nodes_of(ast.Name, code):
        node.id = new.get(node.id, node.id)  # a dotted name is written as it is
    written = compiled.call_line.text(entering)
    read = {new.get(name) for name in results} & {node.id for node in nodes_of(ast.Name, code)}
    names = ", ".join((*(kept if compiled.place.nodes(ast.Return) else ()), *more))
    line = f"{names} = {written}" if more or (read and target is None) else compiled.call_line.code
    return compiled.call_line.code, f"{line}\n{ast.unparse(code)}"


def _kept(target: ast.expr | None, results: list[str]) -> list[str] | None:
    """What the results are called behind the call; None where the line does not show it."""
    if target is None:
        return [name or "_" for name in results]
    names = [dotted(part) for part in (target.elts if isinstance(target, ast.Tuple) else [target])]
    plain = [name for name in names if name is not None]
    return plain if len(plain) == len(names) == len(results) else None
