"""Which sizes are symbols, said where something is compiled: `dynamic=True` from the first call on, `dynamic=False` never.

`mark_dynamic` says it of one tensor, and cannot say it of a parameter whose module is another one in each call.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import libcst as cst
from libcst import matchers

from dynadiag.changes.edits import Edit
from dynadiag.changes.kinds import Kind
from dynadiag.changes.syntax import Tree, tree_of
from dynadiag.errors import EditError
from dynadiag.model.report import Advice

SLUG = "compile-dynamic"
STATIC = "compile-static"
_COMPILE = matchers.Attribute(matchers.Name("torch"), matchers.Name("compile"))
SHAPES = "parameter-shapes"
"""The advice whose options are set as well."""


def compiled_dynamic(file: str, text: str, function: str | None = None) -> Edit:
    """The edit of the file's one `torch.compile`, or of that which compiles a function of this name.

    Raises EditError where there is not one that says nothing of `dynamic`.
    """
    tree = tree_of(text)
    places = _places(tree)
    named = [place for place in places if function is not None and _compiled_name(*place) == function]
    found = named if len(places) > 1 else places
    if len(found) != 1:
        raise EditError(f"the script uses `torch.compile` in {len(places)} places")
    return _edit(file, tree, *found[0], "True")


def compiled_static(file: str, text: str) -> Iterator[Edit]:
    """The edits of all `torch.compile` of a file: each size is then compiled by itself. Raises EditError where one says `dynamic`."""
    tree = tree_of(text)
    for place in _places(tree):
        yield _edit(file, tree, *place, "False")


def _places(tree: Tree) -> list[tuple[Any, Any]]:
    """Each `torch.compile`, and the innermost statement or decorator that holds it."""
    found = []
    for node in matchers.findall(tree.module, _COMPILE):
        holders = [item for item in tree.around if any(inner is node for inner in matchers.findall(item, _COMPILE))]
        found.append((node, min(holders, key=lambda element: len("".join(*tree.codes([element]))))))
    return found


def _call_of(node: Any, holder: Any) -> Any:
    return next((call for call in matchers.findall(holder, matchers.Call()) if cst.ensure_type(call, cst.Call).func is node), None)


def _compiled_name(node: Any, holder: Any) -> str | None:
    """The name of the function or method that a call compiles."""
    call = _call_of(node, holder)
    given = call.args[0].value if call is not None and call.args else None
    if isinstance(given, cst.Attribute):
        given = given.attr
    return given.value if isinstance(given, cst.Name) else None


def _edit(file: str, tree: Tree, node: Any, holder: Any, value: str) -> Edit:
    call = _call_of(node, holder)
    if call is None and not isinstance(holder, cst.Decorator):
        raise EditError("`torch.compile` is not called where it stands")
    (old,) = tree.codes([holder])
    new = holder.deep_replace(call or node, _told(call or cst.Call(node), value))
    return Edit(file=file, old=tuple(old), new=tuple(*tree.codes([new])), near=tree.row(holder))


def _told(call: cst.Call, value: str) -> cst.Call:
    """The call with `dynamic=` behind its arguments, on a line of its own where these are."""
    told = cst.Arg(cst.Name(value), keyword=cst.Name("dynamic"), equal=cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace("")))
    if any(argument.star == "**" or (argument.keyword is not None and argument.keyword.value == "dynamic") for argument in call.args):
        raise EditError("`torch.compile` is told already which sizes are dynamic")
    if not call.args:
        return call.with_changes(args=[told])
    *others, last = call.args
    line = call.whitespace_before_args
    comma = cst.Comma(whitespace_after=line if isinstance(line, cst.ParenthesizedWhitespace) else cst.SimpleWhitespace(" "))
    return call.with_changes(args=[*others, last.with_changes(comma=comma), told.with_changes(comma=last.comma)])


def options_of(file: str, advice: Iterable[Advice]) -> Iterator[Edit]:
    """The edits that set the options which these advices set."""
    for item in advice:
        yield Edit(file=file, old=(), new=tuple((item.after or "").splitlines()))


KINDS = (
    Kind(
        slugs=(SLUG,),
        applied="rule",
        does="`dynamic=True` for the `torch.compile` of what is recompiled, with the options of `parameter-shapes` where the size is a "
        "parameter's: "
        "what is compiled is then not specialized to a size",
        asks="the script says `torch.compile` once, or once of the function that is recompiled, and nothing of `dynamic`",
    ),
    Kind(
        slugs=(STATIC,),
        applied="rule",
        does="`dynamic=False` where the script compiles something: an operator that the compiler cannot make for sizes that change is made "
        "for each size",
        asks="a compilation fails, and no `torch.compile` of the script says anything of `dynamic`",
    ),
)
