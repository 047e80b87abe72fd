"""`dynamic=True` at the one `torch.compile` of a file: sizes that change are symbols from the first call on.

`mark_dynamic` says it of one tensor, and cannot say it of a parameter whose module is another one in each call.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import libcst as cst
from libcst import matchers

from dynadiag.changes.edits import Edit
from dynadiag.changes.kinds import Kind
from dynadiag.changes.syntax import tree_of
from dynadiag.errors import EditError
from dynadiag.model.report import Advice

SLUG = "compile-dynamic"
_COMPILE = matchers.Attribute(matchers.Name("torch"), matchers.Name("compile"))
SHAPES = "parameter-shapes"
"""The advice whose options are set as well."""


def compiled_dynamic(file: str, text: str) -> Edit:
    """The edit of the file's one `torch.compile`. Raises EditError where there is not one that says nothing of `dynamic`."""
    tree = tree_of(text)
    found = matchers.findall(tree.module, _COMPILE)
    if len(found) != 1:
        raise EditError(f"the script uses `torch.compile` in {len(found)} places")
    holders = [item for item in tree.around if found[0] in matchers.findall(item, _COMPILE)]
    holder = min(holders, key=lambda element: len("".join(*tree.codes([element]))))
    (old,) = tree.codes([holder])
    calls = matchers.findall(holder, matchers.Call(func=_COMPILE))
    if not calls and not isinstance(holder, cst.Decorator):
        raise EditError("`torch.compile` is not called where it stands")
    call = calls[0] if calls else cst.Call(cst.ensure_type(found[0], cst.Attribute))
    new = holder.deep_replace(calls[0] if calls else found[0], _told(cst.ensure_type(call, cst.Call)))
    return Edit(file=file, old=tuple(old), new=tuple(*tree.codes([new])), near=tree.row(holder))


def _told(call: cst.Call) -> cst.Call:
    """The call with `dynamic=True` behind its arguments, on a line of its own where these are."""
    told = cst.Arg(cst.Name("True"), keyword=cst.Name("dynamic"), equal=cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace("")))
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
        does="`dynamic=True` for the script's one `torch.compile`, with the options of `parameter-shapes` where the size is a parameter's: "
        "what is compiled is then not specialized to a size",
        asks="the script says `torch.compile` once, on one line, and nothing of `dynamic`",
    ),
)
