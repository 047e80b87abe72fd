"""What a program does when it runs without the compiler: which of its lines run, and plain values like those that it computes. No torch."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from dynadiag.reduce.scripts.program import Program


@dataclass(frozen=True, kw_only=True)
class Facts:
    """`lines` of the program with this `key` ran; `values` are expressions by the text of the statement that gave such a value, of the
    arguments of a function by the line that defines it (`definition_text`).
    """

    key: str = ""
    lines: frozenset[int] = frozenset()
    values: Mapping[str, str] = field(default_factory=dict)
    cpu_s: float = 0.0


FactsOf = Callable[[Program], Facts]


def loop_text(node: ast.For) -> str:
    """The first line of a loop."""
    return f"for {ast.unparse(node.target)} in {ast.unparse(node.iter)}"


def definition_text(name: str, arguments: Sequence[str]) -> str:
    """The first line of a function with these positional arguments."""
    return f"def {name}({', '.join(arguments)})"
