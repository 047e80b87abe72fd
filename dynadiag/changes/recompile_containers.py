"""Cures for recompiles because of the length of a list."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from dynadiag.changes.recompile_cause import Cause
from dynadiag.facts.guard_sources import is_global
from dynadiag.model.report import Advice
from dynadiag.source.call_arguments import the_call
from dynadiag.source.line import SourceLine, dotted


def length_advice(cause: Cause) -> Iterable[Advice]:
    """Another number of elements than was compiled for."""
    name = cause.source.removeprefix("len(").removesuffix(")")
    yield from _appended(cause, name)
    yield from _joined(cause, name)


def key_order_advice(cause: Cause) -> Iterable[Advice]:
    """The same keys in another order: only what makes the dictionary can give them one order."""
    name = cause.source.removeprefix("keys of ")
    text = (
        f"The calls give `{name}` the same keys in different orders, and each order is compiled separately. Put its keys in one order "
        "everywhere."
    )
    yield Advice(slug="one-key-order", text=text)


def _joined(cause: Cause, name: str) -> Iterable[Advice]:
    """A list that the function only stacks: one tensor instead, with one dimension that varies."""
    joined = None if cause.function is None or not {"0", "1"}.isdisjoint(cause.values) else cause.function.joined(name)
    given = cause.passed(name) if joined else None
    if joined is None or given is None or len(cause.entered) != 1:
        return
    line = cause.line
    stacked = joined.replace(name, given.text, 1)
    call = line.replaced(given.node, f"{name}_joined")
    text = (
        f"Each number of elements is compiled separately, and `{cause.frame_name}` only joins them. Write `{name}` for `{joined}` in it, "
        "and join before the call."
    )
    after = f"{name}_joined = {stacked}\ntorch._dynamo.maybe_mark_dynamic({name}_joined, 0)\n{call}"
    yield Advice(slug="stack-list", text=text, before=line.code, after=after)


def _appended(cause: Cause, name: str) -> Iterable[Advice]:
    """What the function appends to a list that it does not read: handed out with the result and appended behind the call.

    Established by the source: the line stands in the function itself, in no loop or branch, and nothing else there uses the list. Where
    a call leaves more changed, as a count does, the versions would stay: torch names the first guard that failed only.
    """
    found = None if cause.function is None or cause.resumed or cause.beside else cause.function.appended(name)
    kept = container_at_call(cause, name)
    if found is None or kept is None or len(cause.entered) != 1:
        return
    line = cause.line
    call = with_result(line, "appended")  # None where the call is a part of a statement, as in `for _ in range(3): step(x)`
    behind = "" if call is not None else f", with `{kept}.{found.method}(...)` behind the call"
    text = (
        f"`{name}` grows with each call, and each length is compiled separately. In `{cause.frame_name}` delete "
        f"`{found.statement}`, write `{found.returned}` for `{found.result}`, and unpack it at every call, uncompiled ones "
        f"included{behind}."
    )
    after = None if call is None else f"{call}\n{kept}.{found.method}(appended)"
    yield Advice(slug="append-outside", text=text, before=None if call is None else line.code, after=after)


def container_at_call(cause: Cause, name: str) -> str | None:
    """An object that outlives the call, as the line that calls the function can write it: a global, `model.seen` for `self.seen`."""
    if not cause.line.code:
        return None
    raw = cause.raw_source.removeprefix("len(")
    if is_global(raw):
        return name if cause.origin is not None and cause.entered[0].file.endswith(cause.origin.file) else None
    if not name.startswith("self."):
        given = cause.passed(name)
        return given.text if given is not None and given.is_name else None
    call = the_call(cause.line)
    owner = None if call is None else dotted(call.func)
    if owner is None or cause.frame_name != "forward":
        return None
    return f"{owner}{name.removeprefix('self')}"


def with_result(line: SourceLine, more: str) -> str | None:
    """The line of the call with a name for a second result; None where its result is not simply kept or dropped."""
    statement, call = line.statement, the_call(line)
    if isinstance(statement, ast.Expr) and statement.value is call:
        return f"_, {more} = {line.code}"
    target = statement.targets[0] if isinstance(statement, ast.Assign) and len(statement.targets) == 1 else None
    if isinstance(statement, ast.Assign) and isinstance(target, ast.Name) and statement.value is call:
        return line.replaced(target, f"{target.id}, {more}")
    return None
