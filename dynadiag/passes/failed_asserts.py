"""An `assert` on a tensor that failed in compiled code: eager raises AssertionError, the graph's operator RuntimeError.

Dynamo puts `torch._assert_async` in its place, with its message or "assertion error" (`generic_jump` of `_dynamo/symbolic_convert.py`,
2.11 to 2.15).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dynadiag.model.clauses import Cause, Effect
from dynadiag.model.location import Location
from dynadiag.model.run import Problem, Run
from dynadiag.passes.mutation_graphs import read_nodes

CLAUSES = (
    Cause("In compiled code an `assert` on a tensor is an operator of the graph and raises RuntimeError; eager raises AssertionError"),
    Effect("An `except AssertionError` around the call does not catch it"),
)
"""What its finding claims."""
_RAISED = "RuntimeError: "
_OPERATOR = "_assert_async"


def failed_assert(problem: Problem, run: Run) -> Location | None:
    """The `assert` whose operator raised the exception, by its message; None where it was none, or where it may be one of several."""
    if not problem.text.startswith(_RAISED) or not problem.stack:
        return None
    message = problem.text.removeprefix(_RAISED).strip()
    found = {(location.file, location.line): location for location in _asserts(run, message)}
    place = next(iter(found.values()), None)
    return place if place is not None and len(found) == 1 and problem.stack[-1].file != place.file else None


def _asserts(run: Run, message: str) -> Iterator[Location]:
    for graph in run.graphs:
        nodes = read_nodes(graph, lambda op: _OPERATOR in op) if graph.kind == "dynamo" else ()
        for node in nodes:
            text = node.args[1] if node.target.endswith(_OPERATOR) and len(node.args) > 1 else None
            if text is not None and node.location is not None and (node.location.code or "").startswith("assert") and _is(text, message):
                yield node.location


def _is(text: str, message: str) -> bool:
    try:
        return str(ast.literal_eval(text)).strip() == message
    except (ValueError, SyntaxError):
        return False
