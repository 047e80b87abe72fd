"""A `try` that is not in force in compiled code: its operators run in a graph, behind the function that would have caught an exception."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dynadiag.facts.statements import recorded_functions
from dynadiag.facts.user_frames import is_own_file
from dynadiag.model.location import Location
from dynadiag.model.run import Run
from dynadiag.source.function import parse_function
from dynadiag.source.line import dotted


@dataclass(frozen=True, slots=True)
class LostHandler:
    """An `except` clause that takes the exception in eager: its line, as it is written, and the line of the `try` that raised."""

    clause: Location
    raising: Location


def lost_handler(raised: str, stack: Sequence[Location], run: Run) -> LostHandler | None:
    """The innermost clause of the user's functions on the stack around their lines that surely takes this exception; None without one.

    `raised` is "IndexError: index 7 is out of bounds". An `assert` on a tensor raises AssertionError in eager.
    """
    kind = raised.partition(":")[0].rpartition(".")[2].lstrip("_")
    for at, place in enumerate(reversed(stack)):
        if not is_own_file(place.file, run) or place.line is None:
            continue
        name = "AssertionError" if at == 0 and (place.code or "").startswith("assert") else kind
        for handler, line in _around(place, run):
            if catches(handler, name):
                return LostHandler(Location(place.file, line, place.function, clause_text(handler)), place)
    return None


def _around(place: Location, run: Run) -> Iterator[tuple[ast.ExceptHandler, int]]:
    """The clauses of each `try` whose body holds the line, innermost first, and the lines of the file that they begin on."""
    line = place.line or 0
    known = [
        recorded_function
        for recorded_function in recorded_functions(place.file, run)
        if recorded_function.line <= line <= recorded_function.line + recorded_function.text.count("\n")
    ]
    function = parse_function(known[-1].text) if known else None
    tries = [] if function is None else list(function.nodes(ast.Try))
    row = line - known[-1].line + 1 if known else 0
    for node in reversed(tries):
        if node.body[0].lineno <= row <= (node.body[-1].end_lineno or 0):
            yield from ((handler, known[-1].line + handler.lineno - 1) for handler in node.handlers)


def clause_text(handler: ast.ExceptHandler) -> str:
    """The clause as it is written: `except (IndexError, RuntimeError)`."""
    return "except" if handler.type is None else f"except {ast.unparse(handler.type)}"


def catches(handler: ast.ExceptHandler, raised: str) -> bool:
    """Whether the handler surely takes an exception of this name; torch's own, such as LinAlgError, are RuntimeErrors."""
    types = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    names = {(dotted(type_) or "").rpartition(".")[2] if type_ is not None else "BaseException" for type_ in types}
    kind = getattr(builtins, raised, RuntimeError)
    return raised in names or any(isinstance(kind, type) and base.__name__ in names for base in getattr(kind, "__mro__", ()))
