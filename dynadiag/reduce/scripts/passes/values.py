"""Values become plainer: what is computed gives way to a value like it, numbers and counts shrink."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from dynadiag.dotted_names import lies_in
from dynadiag.reduce.scripts.passes.editing import edited, replaced
from dynadiag.reduce.scripts.passes.unused import without_unused
from dynadiag.reduce.scripts.program import FactsOf, Program, calls_compiler, loop_text, of_tree


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
    return compiled or (bool(calls) and all(call == "range" or lies_in(call, "torch") for call in calls))


def _has_torch(program: Program) -> bool:
    return any(
        isinstance(node, ast.Import) and any(name.name == "torch" and not name.asname for name in node.names) for node in program.tree.body
    )


def parameter_values(program: Program) -> Iterator[Program]:
    """One program for each value that is assigned or returned and each object that is called in it."""
    count = len(_values(program.tree))
    for number in reversed(range(count)):
        for called in dict.fromkeys(map(ast.unparse, _called(_values(program.tree)[number].value))):
            tree = program.tree
            _values(tree)[number].value = ast.parse(f"next({called}.parameters()).sum()", mode="eval").body
            yield without_unused(of_tree(tree))


def _values(tree: ast.Module) -> list[ast.Assign | ast.Return]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.Assign | ast.Return) and _called(node.value)]


def _called(value: ast.expr | None) -> list[ast.expr]:
    """What is called and may be a module: a name or an attribute of `self` that is no import of the compiler's."""
    if value is None or any(isinstance(node, ast.Call) and calls_compiler(node.func) for node in ast.walk(value)):
        return []
    called = [node.func for node in ast.walk(value) if isinstance(node, ast.Call)]
    return [expression for expression in called if isinstance(expression, ast.Name) or ast.unparse(expression).startswith("self.")]


_TENSORS = ("torch.ones((), requires_grad=True)", "torch.ones(2, 2)")


def plain_tensors(program: Program) -> Iterator[Program]:
    """One program for each such call and each value to put in its place; the last calls first."""
    values = [
        node.value
        for node in ast.walk(program.tree)
        if isinstance(node, ast.Assign | ast.Return) and node.value is not None and not _is_plain_call(node.value)
    ]
    texts = {ast.dump(value, include_attributes=True) for value in values}
    for text in _tensors(program):
        yield from replaced(program, partial(_instead, texts, text))


def _instead(places: set[str], text: str, node: ast.AST) -> list[ast.AST]:
    return [ast.parse(text, mode="eval").body] if isinstance(node, ast.expr) and ast.dump(node, include_attributes=True) in places else []


def _tensors(program: Program) -> tuple[str, ...]:
    """Only where the script itself says `import torch`."""
    names = {alias.asname or alias.name for node in ast.walk(program.tree) if isinstance(node, ast.Import) for alias in node.names}
    return _TENSORS if "torch" in names else ()


def _is_plain_call(value: ast.expr) -> bool:
    """Whether nothing is gained: no call, what is compiled, or a tensor already."""
    calls = [node for node in ast.walk(value) if isinstance(node, ast.Call)]
    return not calls or any(calls_compiler(call.func) for call in calls) or ast.unparse(value) in _TENSORS


def small_constants(program: Program) -> Iterator[Program]:
    """Equal numbers together (they may have to fit each other), then each alone."""
    found = {value for node in ast.walk(program.tree) if (value := _number(node)) is not None}
    for value in sorted(found, key=lambda number: (-abs(number), isinstance(number, float))):
        for smaller in _smaller(value):
            tree = program.tree
            for node in ast.walk(tree):
                if isinstance(node, ast.Constant) and (_number(node), type(node.value)) == (value, type(value)):
                    node.value = smaller
            yield of_tree(tree)
    yield from edited(program, _changes)


def _changes(node: ast.AST) -> list[Callable[[], None]]:
    value = _number(node)
    return [] if value is None else [partial(setattr, node, "value", smaller) for smaller in _smaller(value)]


def _number(node: ast.AST) -> int | float | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool):
        return node.value
    return None


def _smaller(value: float) -> list[int | float]:
    tried = (1, 2, 4, value // 2) if isinstance(value, int) else (1.0,)
    return list(dict.fromkeys(number for number in tried if 0 < abs(number) < abs(value)))


_COUNT = re.compile(r"layer|depth|block|epoch|step|iter|repeat|round|stage|n_l\b|num_workers", re.IGNORECASE)


def few_repeats(program: Program) -> Iterator[Program]:
    """All counts, then each alone, the last first; one and, where that does not do, two."""
    count = len(_counts(program.tree))
    for wanted in (range(count), *([number] for number in reversed(range(count)))):
        for small in (1, 2):
            tree = program.tree
            found = _counts(tree)
            for number in wanted:
                found[number].value = small if isinstance(found[number].value, int) else found[number].value
            made = of_tree(tree)
            if made.key != program.key:
                yield made


def _counts(tree: ast.Module) -> list[ast.Constant]:
    found: list[ast.Constant] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg and _COUNT.search(node.arg):
            found += _large(node.value)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if node.value is not None and any(_COUNT.search(ast.unparse(target)) for target in targets):
                found += _large(node.value)
        elif isinstance(node, ast.arguments):
            for name, value in zip(reversed([*node.posonlyargs, *node.args]), reversed(node.defaults), strict=False):
                found += _large(value) if _COUNT.search(name.arg) else []
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range":
            found += [constant for argument in node.args for constant in _large(argument)]
    return found


def _large(value: ast.expr) -> list[ast.Constant]:
    is_count = isinstance(value, ast.Constant) and isinstance(value.value, int) and not isinstance(value.value, bool) and value.value > 1
    return [value] if is_count and isinstance(value, ast.Constant) else []
