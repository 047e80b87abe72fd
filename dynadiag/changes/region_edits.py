"""How a smaller region is compiled instead of what calls it: the lines at `torch.compile(...)`, or at the function that it decorates."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dynadiag.changes.edits import Edit, alone
from dynadiag.errors import EditError
from dynadiag.source.line import dotted
from dynadiag.source.program import Function, Program, Scope
from dynadiag.source.tree import nodes_of


class ProofNames(NamedTuple):
    """What proofs know by name: what watches a plain function, and the option of a compiled one whose calls are not observed."""

    watch: str
    apart: str


@dataclass(frozen=True)
class Region:
    """What can be compiled by itself: a `module`, each module of a `list`, a `method`, a `function` of the file or one that is `local` to
    the function with the `torch.compile`, by its name there.
    """

    form: str
    name: str

    @property
    def is_module(self) -> bool:
        """Whether it is the whole of one module, or of several."""
        return self.form in ("module", "list") or self.name.endswith(".forward")

    def rows(self, options: Sequence[str]) -> tuple[str, ...]:
        """The statements that compile it."""
        given = ", ".join(options)
        if self.form == "module":
            return (f"{self.name}.compile({given})",)
        if self.form == "list":
            return (f"for part in {self.name}:", f"    part.compile({given})")
        rows = (f"{self.name} = torch.compile({', '.join((self.name, *options))})",)
        return (f"global {self.name}", *rows) if self.form == "function" else rows


def edit_at_call(file: str, program: Program, call: ast.Call, regions: Sequence[Region], names: ProofNames) -> Edit:
    """The statement with a `torch.compile(driver, ...)` that names the driver alone, behind those that compile the regions.

    Raises EditError where it is no plain statement.
    """
    statement, scope = program.statement_of(call), program.scope_of(call)
    if not isinstance(statement, ast.Assign | ast.Return | ast.Expr | ast.AnnAssign) or len(call.args) != 1:
        raise EditError("the statement that compiles is no plain assignment")
    rows = alone(program.text, statement)
    source = "\n".join(rows)
    whole, target = (ast.get_source_segment(program.text, node) or "" for node in (call, call.args[0]))
    if source.count(whole) != 1:
        raise EditError("the call that compiles is written over several lines")
    options = _options(program, call)
    new, seen = (
        [row for region in regions for row in region.rows(given) if isinstance(scope, Function) or not row.startswith("global ")]
        for given in (options, [*options, f"{names.apart}=True"])
    )
    _check_globals(program, scope, statement, regions)
    plain, watched = (source.replace(whole, text).splitlines() for text in (target, f"{names.watch}({target})"))
    if new and holder_of(program, call) == dotted(call.args[0]):  # `model = torch.compile(model)`: no statement is left of it
        plain = []
    if isinstance(call.args[0], ast.Call):  # what is made there has its name only behind the statement
        return Edit(file=file, old=rows, new=(*plain, *new), near=statement.lineno, observed=(*watched, *seen))
    return Edit(file=file, old=rows, new=(*new, *plain), near=statement.lineno, observed=(*seen, *watched))


def holder_of(program: Program, call: ast.Call) -> str | None:
    """The one name that a statement gives to the value of a call, and nothing but it."""
    statement = program.statement_of(call)
    alone = isinstance(statement, ast.Assign) and len(statement.targets) == 1 and statement.value is call
    return dotted(statement.targets[0]) if alone and isinstance(statement, ast.Assign) else None


def edits_at_decorator(
    file: str, program: Program, function: Function, decorator: ast.expr, regions: Sequence[Region], names: ProofNames
) -> list[Edit]:
    """The decorator goes from a function to the functions and methods among the regions; modules are compiled where the object of the
    method is made, or before the first call of the function.

    Raises EditError where there is no such place.
    """
    options = _options(program, decorator if isinstance(decorator, ast.Call) else None)
    seen = [*options, f"{names.apart}=True"]
    old = (f"@{ast.get_source_segment(program.text, decorator)}",)
    edits = [Edit(file=file, old=old, new=(), near=decorator.lineno, observed=(f"@{names.watch}",))]
    around = program.class_around(function)
    left: list[Region] = []
    for region in regions:
        own = region.name.removeprefix("self.")
        method = program.method(around.name, own) if around is not None and region.form == "method" else None
        node = program.functions.get(region.name) if region.form == "function" else method
        if node is not None:
            edits.append(_with_decorator(file, program, node, options, seen))
        elif not _is_compiled(program, region):
            left.append(region)
    if left:
        edits.append(_where_objects_are_made(file, program, function, left, options, seen))
    return edits


def _is_compiled(program: Program, region: Region) -> bool:
    """Whether the file compiles the module in place already: a change that was made before may have left another driver plain."""
    own = f"{region.name}.compile"
    return region.form == "module" and any(dotted(call.func) == own for call in program.calls)


def _with_decorator(file: str, program: Program, node: Function, options: Sequence[str], seen: Sequence[str]) -> Edit:
    header = program.text.splitlines()[node.lineno - 1].strip()
    if not header.endswith(":"):
        raise EditError(f"the header of `{node.name}` is written over several lines")
    new, watched = ((f"@torch.compile({', '.join(given)})", header) for given in (options, seen))
    return Edit(file=file, old=(header,), new=new, near=node.lineno, observed=watched)


def _where_objects_are_made(
    file: str, program: Program, function: Function, regions: Sequence[Region], options: Sequence[str], seen: Sequence[str]
) -> Edit:
    new, watched = (tuple(row for region in regions for row in region.rows(given)) for given in (options, seen))
    around = program.class_around(function)
    if around is not None:
        init = program.method(around.name, "__init__")
        if init is None:
            raise EditError(f"`{around.name}` has no `__init__` in which its parts could be compiled")
        rows = alone(program.text, init.body[-1])
        return Edit(file=file, old=rows, new=(*rows, *new), near=init.body[-1].lineno, observed=(*rows, *watched))
    first = first_caller(program, function)
    if first is None:
        raise EditError(f"`{function.name}` is called in more than one function")
    return Edit(file=file, old=(), new=new, near=first.lineno, observed=watched)


def first_caller(program: Program, function: Function) -> ast.stmt | None:
    """The statement of a function, or of the file, that holds the first call of a function; None where several functions call it."""
    calls = list(program.callers(function))
    scopes = {id(scope): scope for call in calls if (scope := program.scope_of(call)) is not function}
    if len(scopes) != 1:
        return None
    (scope,) = scopes.values()
    holders = [item for item in scope.body if any(item.lineno <= call.lineno <= (item.end_lineno or 0) for call in calls)]
    return holders[0] if holders else None


def _options(program: Program, call: ast.Call | None) -> list[str]:
    words = [] if call is None else call.keywords
    if any(word.arg is None for word in words):
        raise EditError("`torch.compile` is given options that are not written there")
    return [f"{word.arg}={ast.get_source_segment(program.text, word.value)}" for word in words]


def _check_globals(program: Program, scope: Scope, statement: ast.stmt, regions: Sequence[Region]) -> None:
    """Raise EditError where a name that becomes `global` in a function is used there before."""
    if not isinstance(scope, Function):
        return
    named = {region.name for region in regions if region.form == "function"}
    uses = (node for node in nodes_of(ast.Name, scope) if node.id in named and node.lineno < statement.lineno)
    used = next((node.id for node in uses if program.scope_of(node) is scope), None)
    if used is not None:
        raise EditError(f"`{used}` is used before what calls it is compiled")
