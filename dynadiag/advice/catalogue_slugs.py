"""Every slug that the advice tables use, with its words, read from their source: what a table gains is on the page by itself."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

_SLUG = re.compile(r"[a-z]+[0-9]*(?:-[a-z0-9]+)+")
_HERE = Path(__file__).parent
_NOT_TABLES = ("catalogue.py", "catalogue_slugs.py")

Assigned = Mapping[str, Sequence[ast.expr]]


def described() -> Mapping[str, str]:
    """All slugs in alphabetical order, each with the words of its first use; gaps that are filled for a program are "…"."""
    found: dict[str, str] = {}
    for file in sorted(_HERE.glob("*.py")):
        if file.name not in _NOT_TABLES:
            for slug, text in _of_module(ast.parse(file.read_text(encoding="utf-8"))):
                found[slug] = found.get(slug) or text
    return dict(sorted(found.items()))


def _of_module(tree: ast.Module) -> Iterator[tuple[str, str]]:
    names = _assigned(tree)
    for scope in (*(node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)), tree):
        local = _assigned(scope)
        for node in ast.walk(scope):
            parts = _parts(node)
            slug = next((text for part in parts if _SLUG.fullmatch(text := _words(part, names))), None)
            if slug is not None:
                yield slug, next((text for part in parts if (text := _words(part, local)).count(" ") > 2), "")


def _parts(node: ast.AST) -> list[ast.expr]:
    """What stands together: the arguments of a call, the elements of a tuple."""
    if isinstance(node, ast.Call):
        return [*node.args, *(keyword.value for keyword in node.keywords)]
    return list(node.elts) if isinstance(node, ast.Tuple) else []


def _assigned(scope: ast.AST) -> Assigned:
    """The values of each simple name of a function or module, in the order of the text."""
    found: dict[str, list[ast.expr]] = {}
    for node in ast.walk(scope):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            found.setdefault(node.targets[0].id, []).append(node.value)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            found.setdefault(node.target.id, []).append(node.value)
    return {name: sorted(values, key=lambda value: value.lineno) for name, values in found.items()}


def _words(part: ast.expr, names: Assigned, depth: int = 0) -> str:
    """The text of a literal, of an f-string with "…" for its gaps, or of a name by its last value above; else nothing."""
    if isinstance(part, ast.Constant):
        return part.value if isinstance(part.value, str) else ""
    if isinstance(part, ast.JoinedStr):
        return "".join(str(value.value) if isinstance(value, ast.Constant) else "…" for value in part.values)
    if isinstance(part, ast.Name) and depth < 3:
        above = [value for value in names.get(part.id, ()) if value.lineno <= part.lineno]
        return _words(above[-1], names, depth + 1) if above else ""
    return ""
