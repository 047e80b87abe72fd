"""The cases with which advice is tested (`tests/with_torch/advice/table_*.py`), as texts for the pages that show them."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

TABLES = Path(__file__).parent / "with_torch/advice"


@dataclass(frozen=True, kw_only=True)
class Case:
    """The text of each function, `before` and what cures it, the statement of each option, and the ids of its breaks."""

    functions: Mapping[str, str]
    options: Mapping[str, str]
    ids: tuple[str, ...]


def cases() -> Iterator[Case]:
    """All, in the order of the files."""
    for path in sorted(TABLES.glob("table_*.py")):
        source = path.read_text("utf-8")
        body = ast.parse(source).body
        texts = {
            ast.unparse(one.targets[0]): one.value.value
            for one in body
            if isinstance(one, ast.Assign) and isinstance(one.value, ast.Constant)
        }
        for case in body:
            if isinstance(case, ast.ClassDef):
                yield _case(case, source, texts)


def _case(case: ast.ClassDef, source: str, texts: Mapping[str, object]) -> Case:
    set_to = {ast.unparse(one.targets[0]): one.value for one in case.body if isinstance(one, ast.Assign)}
    options = {}
    for name, value in set_to.items():
        if isinstance(value, ast.Call) and ast.unparse(value.func) == "option":
            given = value.args[0]
            told = given.value if isinstance(given, ast.Constant) else texts.get(ast.unparse(given))
            options |= {name: told} if isinstance(told, str) else {}
    return Case(
        functions={one.name: _function(one, source) for one in case.body if isinstance(one, ast.FunctionDef)},
        options=options,
        ids=tuple(re.findall(r"GB\d{4}", ast.unparse(set_to["breaks"]))) if "breaks" in set_to else (),
    )


def _function(node: ast.FunctionDef, source: str) -> str:
    text = textwrap.dedent("\n".join(source.split("\n")[node.lineno - 1 : node.end_lineno]))
    return re.sub(r"^def \w+\(", "def f(", text)
