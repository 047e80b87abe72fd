"""A loop that a tensor ends, or that a changing number counts, left in Python, its body compiled as a function of its own: an idea."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dynadiag.changes.compiled_function import CompiledFunction
from dynadiag.facts.wording import listed
from dynadiag.model.report import Advice
from dynadiag.source.line import dotted
from dynadiag.source.place import Place
from dynadiag.source.tree import holds, nodes_of, reads_in

PLAIN_LOOP = "plain-loop"


def plain_loop(place: Place, compiled: CompiledFunction, *, skipped: bool) -> Iterator[Advice]:
    """The part of a loop before the statement that decides on its end, or at which Dynamo gives up the function (`skipped`), compiled."""
    statement = place.statement()
    around = list(place.around(statement))
    loop = next((node for node in around if isinstance(node, ast.For | ast.While) and node is not statement), None)
    inside = next((node for node in (statement, *around) if loop is not None and node in loop.body), None)
    if loop is None or inside is None:
        return
    at = loop.body.index(inside)
    ends = inside is statement and isinstance(statement, ast.If) and holds(statement, ast.Break, ast.Return)
    if ends or skipped:
        why = "a value ends it" if ends else "Dynamo does not go on inside of a loop and leaves all of it to Python"
        yield from _compiled_iteration(place, compiled, loop.body[:at], loop.body[at:], why)


def counted_loop(number: str, compiled: CompiledFunction) -> Iterator[Advice]:
    """The body of the loop that turns as often as a number says, which torch unrolls for each number anew."""
    place = compiled.place
    for loop in place.nodes(ast.For):
        counts = isinstance(loop.iter, ast.Call) and dotted(loop.iter.func) == "range"
        if counts and any(dotted(node) == number for node in nodes_of(ast.expr, loop.iter)):
            yield from _compiled_iteration(place, compiled, loop.body, [], f"torch unrolls it for each value of `{number}`")


def _compiled_iteration(place: Place, compiled: CompiledFunction, body: list[ast.stmt], rest: list[ast.stmt], why: str) -> Iterator[Advice]:
    if not body or any(holds(statement, ast.Return, ast.Break, ast.Continue, ast.Yield, ast.Await) for statement in body):
        return
    bound = [node.id for node in nodes_of(ast.Name, *body) if isinstance(node.ctx, ast.Store)]
    made = list(dict.fromkeys(bound))
    function = set(place.index.stores) | set(place.index.arguments)
    given = sorted(name for name in reads_in(*body) if name in function and (name not in bound or _is_read_first(body, name)))
    behind = {node.id for statement in (*rest, *place.node.body) for node in nodes_of(ast.Name, statement)}
    results = [name for name in made if name in behind]
    if not results or not given:
        return
    rows = place.written(body[0], body[-1]).splitlines()
    written = "\n".join((f"def one_iteration({', '.join(given)}):", *(f"    {row}" for row in rows), f"    return {', '.join(results)}"))
    options = compiled.options
    decorator = f"@torch.compile({', '.join(options)})" if options else "@torch.compile"
    yield Advice(
        slug=PLAIN_LOOP,
        text=f"Leave the loop of `{compiled.name}` in plain Python, since {why}: remove "
        f"`{compiled.line.code or 'torch.compile'}`, compile "
        f"what one iteration computes, and write `{', '.join(results)} = one_iteration({', '.join(given)})` for "
        f"{listed([f'`{row.strip()}`' for row in rows], limit=3)}",
        after=f"{decorator}\n{written}",
        how_sure="idea",
    )


def _is_read_first(body: list[ast.stmt], name: str) -> bool:
    for one in body:
        if name in reads_in(one):
            return True
        if any(node.id == name for node in nodes_of(ast.Name, one) if isinstance(node.ctx, ast.Store)):
            return False
    return False
