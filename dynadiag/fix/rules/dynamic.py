"""`dynamic=True` at the one `torch.compile` of a file: sizes that change are symbols from the first call on.

`mark_dynamic` says it of one tensor, and cannot say it of a parameter whose module is another one in each call.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from dynadiag.fix.edits import Edit, EditError
from dynadiag.model.report import Advice

SLUG = "compile-dynamic"
SHAPES = "parameter-shapes"
"""The advice whose options are set as well."""


def compiled_dynamic(file: str, text: str) -> Edit:
    """The edit of the file's one `torch.compile`. Raises EditError where there is not one that says nothing of `dynamic`."""
    found = [one for one in ast.walk(ast.parse(text)) if isinstance(one, ast.Attribute) and ast.unparse(one) == "torch.compile"]
    if len(found) != 1:
        raise EditError(f"the script uses `torch.compile` in {len(found)} places")
    (name,) = found
    call = next((one for one in ast.walk(ast.parse(text)) if isinstance(one, ast.Call) and _place(one.func) == _place(name)), None)
    if call is not None and any(one.arg in (None, "dynamic") for one in call.keywords):
        raise EditError("`torch.compile` is told already which sizes are dynamic")
    if call is not None and call.lineno != call.end_lineno:
        raise EditError("`torch.compile` is called on several lines")
    row = text.splitlines()[name.lineno - 1].encode()
    if call is None:
        if not row.strip().startswith(b"@"):
            raise EditError("`torch.compile` is not called where it stands")
        at, put = name.end_col_offset or 0, b"(dynamic=True)"
    else:
        at = (call.end_col_offset or 0) - 1
        put = b", dynamic=True" if call.args or call.keywords else b"dynamic=True"
    new = row[:at] + put + row[at:]
    return Edit(file=file, old=(row.strip().decode(),), new=(new.strip().decode(),), near=name.lineno)


def options_of(file: str, advice: Iterable[Advice]) -> Iterator[Edit]:
    """The edits that set the options which these advices set."""
    for one in advice:
        yield Edit(file=file, old=(), new=tuple((one.after or "").splitlines()))


def _place(node: ast.expr) -> tuple[int, int, int | None]:
    return node.lineno, node.col_offset, node.end_col_offset
