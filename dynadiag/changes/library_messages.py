"""Messages of libraries that end a graph: given while Dynamo traces, where they are shown once anyway."""

from __future__ import annotations

import ast

import libcst as cst

from dynadiag.changes.change import Candidate
from dynadiag.changes.edits import Edit, alone, placed, with_value
from dynadiag.changes.kinds import Kind
from dynadiag.errors import EditError
from dynadiag.source.line import dotted
from dynadiag.source.tree import nodes_of

WARN = "dynadiag_warn"
"""The name of the helper that gives a warning from the line that it is told."""
WARN_SLUG = "warn-while-tracing"


def while_tracing(cure: str, file: str, text: str, row: int) -> Candidate | None:
    """The message at a row of a library's file, given through a function that Dynamo runs while it traces; None where none is there.

    Raises EditError for one whose place is that of the caller.
    """
    tree = ast.parse(text)
    said = next((node for node in nodes_of(ast.Expr, tree) if node.lineno <= row <= (node.end_lineno or row)), None)
    call = said.value if said is not None else None
    if said is None or not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return None
    owner, method = dotted(call.func.value) or "", call.func.attr
    if _is_once(call, owner):
        helper = f"dynadiag_{method}"
        body = (f"def {helper}(*words):", f"    {owner}.{method}(*words)")
        return _through(cure, file, text, said, helper, None, body, f"the message of `{owner}.{method}`, which is given once anyway,")
    if owner != "warnings" or method != "warn":
        return None
    if not any(
        isinstance(statement, ast.Import) and any(name.name == "warnings" == (name.asname or name.name) for name in statement.names)
        for statement in tree.body
    ):
        raise EditError("the file does not contain `import warnings`")
    if len(call.args) > 2 or any(keyword.arg != "category" for keyword in call.keywords):
        raise EditError("the warning names the line of a caller, which is another one while Dynamo traces")
    registry = 'globals().setdefault("__warningregistry__", {})'
    body = (
        f"def {WARN}(line, message, category=UserWarning):",
        f"    warnings.warn_explicit(message, category, __file__, line, __name__, {registry})",
    )
    return _through(cure, file, text, said, WARN, call.lineno, body, "a warning that is shown once anyway")


def _is_once(call: ast.Call, owner: str) -> bool:
    """Whether it is a logger's `..._once(words)`."""
    is_logger = "log" in owner.rpartition(".")[2].lower() and not owner.startswith(("self", "cls"))
    return is_logger and not call.keywords and isinstance(call.func, ast.Attribute) and call.func.attr.endswith("_once")


def _through(cure: str, file: str, text: str, said: ast.Expr, helper: str, line: int | None, body: tuple[str, ...], what: str) -> Candidate:
    """The call of `said` through a helper, which is given `line` before the arguments."""
    old = alone(text, said)

    def through(call: cst.Call) -> cst.Call:
        comma = cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
        first = [] if line is None else [cst.Arg(cst.Integer(str(line)), comma=comma)]
        return call.with_changes(func=cst.Name(helper), args=[*first, *call.args])

    new, _ = with_value(old, through)
    added = ("", "", "@torch._dynamo.assume_constant_result", *body, "", "")
    edits = (Edit(file=file, old=old, new=new, near=said.lineno), Edit(file=file, old=(), new=added))
    spans = tuple(placed(text, edit) for edit in edits)
    slug = WARN_SLUG if helper == WARN else "log-while-tracing"
    return Candidate(id="", slug=slug, text=f"Give {what} while Dynamo traces", edits=edits, spans=spans, cures=(cure,))


KINDS = (
    Kind(
        slugs=("log-while-tracing",),
        applied="rule",
        does="in a library: `logger.warning_once(...)` is said while Dynamo traces",
        asks="the method ends in `_once`, so each message is said once anyway; the logger is no attribute of the model",
    ),
    Kind(
        slugs=(WARN_SLUG,),
        applied="rule",
        does="in a library: `warnings.warn(...)` is given while Dynamo traces, from its own line",
        asks="the warning names no line of a caller (`stacklevel`); the proof refuses it where eager shows the warning more than once, "
        "and the "
        "patched program shows it less often: filters such as `always` are then in use",
    ),
)
