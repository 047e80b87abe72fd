"""The cure of an entry of the atlas as edits: of the calls that it names, in the script and the file of the line, or of the script."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from dynadiag.changes.edits import Edit, alone
from dynadiag.changes.library_cure import is_call_of, with_argument
from dynadiag.changes.syntax import rows_of
from dynadiag.errors import EditError
from dynadiag.fix.sources import Sources
from dynadiag.rules.libraries.entries import Edit as AtlasEdit
from dynadiag.rules.libraries.entries import read_library
from dynadiag.source.imports import imported_names
from dynadiag.source.tree import calls_in, nodes_of

_SIMPLE: Final = ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Expr | ast.Return


def library_edits(key: str, file: str, sources: Sources) -> Iterator[Edit]:
    """The edits of the entry that an advice names. Raises EditError where the atlas has words only, or nothing fits them."""
    edit = _edit_of(key)
    script, text = sources.text(sources.script)
    if edit.code is not None:
        near = _first_row(text) if edit.at == "top" else None
        yield Edit(file=script, old=(), new=tuple(rows_of(edit.code.strip())), near=near)
        return
    files = dict((sources.text(file), (script, text)))
    made = [change for path, content in files.items() for change in _with_argument(edit, path, content)]
    if not made:
        function = (edit.call or "").rpartition(".")[2]
        raise EditError(f"neither the script nor the file of the line calls `{function}` without `{edit.argument}=`")
    yield from made


def library_settings(key: str | None) -> tuple[str, ...]:
    """The attributes that the cure of an entry sets otherwise; none for advice that is not of the atlas."""
    return () if key is None else _edit_of(key).sets


def _edit_of(key: str) -> AtlasEdit:
    package, _, name = key.partition("/")
    library = read_library(package)
    entry = next((entry for entry in ([] if library is None else library.entries) if entry.name == name), None)
    if entry is None or entry.edit is None:
        raise EditError("the atlas has no edit for it")
    return entry.edit


def _with_argument(edit: AtlasEdit, file: str, text: str) -> Iterator[Edit]:
    """An edit for each statement of a file with such calls; those in headers, such as `for x in f():`, are left alone."""
    tree = ast.parse(text)
    names = imported_names(tree)
    for node in nodes_of(ast.stmt, tree):
        if isinstance(node, _SIMPLE) and any(is_call_of(call, edit, names) for call in calls_in(node)):
            old = alone(text, node)
            if (new := with_argument(edit, "\n".join(old), names)) is not None:
                yield Edit(file=file, old=old, new=tuple(rows_of(new)), near=node.lineno)


def _first_row(text: str) -> int:
    """The first statement that is neither a docstring nor an import of `__future__`."""
    for number, node in enumerate(ast.parse(text).body):
        is_docstring = number == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if not is_docstring and not (isinstance(node, ast.ImportFrom) and node.module == "__future__"):
            return node.lineno
    raise EditError("the script has no statement")
