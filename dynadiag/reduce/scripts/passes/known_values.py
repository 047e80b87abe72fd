"""A value that is computed gives way to a plain one like it: tensors of the same shape and dtype, a list of one batch for a loader."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping

from dynadiag.reduce.scripts.facts import FactsOf, loop_text
from dynadiag.reduce.scripts.passes.unused import without_unused
from dynadiag.reduce.scripts.program import Program, calls_compiler, of_tree


def plain_values(facts_of: FactsOf) -> Callable[[Program], Iterator[Program]]:
    """The pass for what a run without the compiler shows; what comes last goes first, since most hangs on it."""

    def known_values(program: Program) -> Iterator[Program]:
        values = facts_of(program).values
        if not values or not _has_torch(program):
            return
        count = sum(isinstance(node, ast.Assign | ast.For) for node in ast.walk(program.tree))
        for number in reversed(range(count)):
            tree = program.tree
            node = [child for child in ast.walk(tree) if isinstance(child, ast.Assign | ast.For)][number]
            if (known := _known(node, values)) is not None:
                for text in dict.fromkeys((known, known.replace(", requires_grad=True", ""))):
                    _put(node, ast.parse(text, mode="eval").body)
                    yield without_unused(of_tree(tree))

    return known_values


def _known(node: ast.Assign | ast.For, values: Mapping[str, str]) -> str | None:
    if isinstance(node, ast.For):
        text = values.get(loop_text(node))
        return None if text is None or _is_plain(node.iter) else f"[{text}]"
    text = values.get(ast.unparse(node))
    return None if text is None or _is_plain(node.value) else text


def _put(node: ast.Assign | ast.For, value: ast.expr) -> None:
    if isinstance(node, ast.For):
        node.iter = value
    else:
        node.value = value


def _is_plain(value: ast.expr) -> bool:
    """Whether nothing is gained: a constant, a name, a call of torch's own, what is compiled."""
    if isinstance(value, ast.Constant | ast.Name):
        return True
    calls = [ast.unparse(node.func) for node in ast.walk(value) if isinstance(node, ast.Call)]
    compiled = any(calls_compiler(node) for node in ast.walk(value))
    return compiled or (bool(calls) and all(call == "range" or call.startswith("torch.") for call in calls))


def _has_torch(program: Program) -> bool:
    return any(
        isinstance(node, ast.Import) and any(name.name == "torch" and not name.asname for name in node.names) for node in program.tree.body
    )
