"""What the recorded graphs of a function took: which of its names are tensors, and whether a gradient flows through them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from dynadiag.facts.guard_sources import readable
from dynadiag.facts.statements import recorded_functions
from dynadiag.facts.user_frames import of_last_run, resume_line, source_function
from dynadiag.model.graph import TracedInput
from dynadiag.model.location import Location
from dynadiag.model.run import Frame, Run
from dynadiag.source.function import parse_function
from dynadiag.source.imports import imports_of
from dynadiag.source.line import dotted
from dynadiag.source.place import Place, function_around

_MOST_DECORATORS = 3
_CELL = re.compile(r"L\['(\w+)'\]\.__closure__\[(\d{1,3})\]\.cell_contents\._(?:modules|parameters)\[")
_NAME = re.compile(r"(?:\w+|self(?:\.\w+)+)$")
_FLOATS = frozenset(("torch.float32", "torch.float64", "torch.float16", "torch.bfloat16"))
# Words by which a function makes tensors of other types than those that it was given.
_OTHER_TYPES = re.compile(r"\b(?:double|float64|half|float16|bfloat16|complex\w*|cfloat|cdouble|autocast|dtype|type_as|numpy|np)\b")


def with_given(place: Place | None, at: Location, run: Run) -> Place | None:
    """The place with what all recorded compilations of its function took."""
    if place is None or at.line is None:
        return place
    frames = _frames_of(place, at.file, at.line - place.row + 1, run)
    own = {frame.id: resume_line(frame.name) is None for frame in frames}
    taken = [item for frame in own for item in _taken(run).get(frame, ())]
    shapes: dict[str, set[tuple[int, ...] | None]] = {}
    for traced_input in taken:
        if _NAME.match(name := readable(traced_input.source)) is not None:
            shapes.setdefault(name, set()).add(traced_input.shape)
    kinds = {str(element.dtype) for element in taken}
    text = "\n".join(place.rows[: place.node.end_lineno])
    others = _OTHER_TYPES.search(text) is not None or any("___from_numpy" in entry.source for entry in taken)
    no_history = bool(kinds) and not any(one.requires_grad for one in taken) and "requires_grad" not in text
    return replace(
        place,
        tensors=frozenset(shapes),
        all_tensors=any(own[frame] and _taken(run).get(frame) for frame in own) and not any("___from_numpy" in one.source for one in taken),
        dimensions={name: lengths.pop() for name, found in shapes.items() if len(lengths := {len(pair or ()) for pair in found}) == 1},
        singles=frozenset(name for name, found in shapes.items() if found == {()}),
        no_gradient=no_history and kinds <= _FLOATS,
        no_history=no_history,
        floating=bool(kinds) and kinds <= _FLOATS,
        float32=kinds & _FLOATS == {"torch.float32"} and not (others or any("complex" in kind for kind in kinds)),
    )


def takes_leaves(frames: Iterable[str], run: Run) -> bool:
    """Whether no tensor that these compilations took has a history; False where none was recorded."""
    taken = [traced_input for frame in frames for traced_input in _taken(run).get(frame, ())]
    return bool(taken) and all(item.is_leaf or not item.requires_grad for item in taken)


def called_modules(own: Location | None, run: Run) -> tuple[str, ...]:
    """The modules that the function around the line calls, as it names them, as far as its recorded graphs took their parameters."""
    place = None if own is None else function_around(run, own.file, own.line)
    if place is None or own is None or own.line is None:
        return ()
    frames = _frames_of(place, own.file, own.line - place.row + 1, run)
    sources = {traced_input.source for frame in frames for traced_input in _taken(run).get(frame.id, ()) if traced_input.is_parameter}
    # Not all that a source goes through is a module: `forward.__closure__[1].cell_contents` of a function, which has no `compile()`.
    owners = {readable(source[: part.start()]) for source in sources for part in re.finditer(r"\._(?:modules|parameters)\[", source)}
    names = [name for call in place.nodes(ast.Call) if (name := dotted(call.func)) is not None]
    cells = dict.fromkeys((found[1], int(found[2])) for word in sorted(sources) if (found := _CELL.match(word)) is not None)
    inner = [_in_cell(own.file, name, cell, run) for name, cell in cells if name in names]
    if None in inner:
        return ()
    return tuple(dict.fromkeys((*(name for name in names if name in owners), *filter(None, inner))))


def _in_cell(file: str, function: str, cell: int, run: Run) -> str | None:
    """The module that a nested function calls, by the name that both functions have for it; None where their sources do not tell.

    CPython orders `__closure__` as the names in `co_freevars`, which are sorted (3.9 to 3.14).
    """
    own = recorded_functions(file, run)
    nested = [one for one in own if one.name.rpartition(".")[2] == function and "." in one.name]
    around = [one for one in own if len(nested) == 1 and one.name == nested[0].name.rpartition(".")[0]]
    inner, outer = (parse_function(one[0].text, imports_of(file, run)) if len(one) == 1 else None for one in (nested, around))
    if inner is None or outer is None:
        return None
    bound = _bound(outer.node) - _bound(inner.node)
    used = sorted({node.id for node in inner.nodes(ast.Name)} & bound)
    called = {call.func.id for call in inner.nodes(ast.Call) if isinstance(call.func, ast.Name)}
    return used[cell] if cell < len(used) and used[cell] in called else None


def _bound(node: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """The names that a function binds itself: arguments, assignments, imports, and functions in it, but not what these bind."""
    found = {descendant.arg for descendant in ast.walk(node.args) if isinstance(descendant, ast.arg)}
    left: list[ast.AST] = list(node.body)
    while left:
        child = left.pop()
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(child.name)
        elif isinstance(child, ast.alias):
            found.add((child.asname or child.name).partition(".")[0])
        elif isinstance(child, ast.ExceptHandler) and child.name:
            found.add(child.name)
        elif isinstance(child, ast.Name) and not isinstance(child.ctx, ast.Load):
            found.add(child.id)
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            left += ast.iter_child_nodes(child)
    return found


@of_last_run
def sizes_vary(run: Run) -> bool:
    """Whether two compilations of one function took a tensor of another size under the same name."""
    codes = {frame.id: (frame.key.process, frame.file, frame.line, frame.name) for frame in run.frames}
    shapes: dict[tuple[object, str], set[tuple[int, ...] | None]] = {}
    for traced_input in run.traced_inputs:
        if not traced_input.is_parameter:
            shapes.setdefault((codes.get(traced_input.frame), traced_input.source), set()).add(traced_input.shape)
    return any(len(found) > 1 for (code, _), found in shapes.items() if code is not None)


def _frames_of(place: Place, file: str, begin: int, run: Run) -> Iterator[Frame]:
    """The frames of this function, and those that go on in it after a break; that of a decorated one begins with its decorators."""
    for frame in _frames_by_function(run).get((file, place.node.name), ()):
        if frame.line is not None and begin - _MOST_DECORATORS <= frame.line < begin + (place.node.end_lineno or 0):
            yield frame


@of_last_run
def _frames_by_function(run: Run) -> Mapping[tuple[str | None, str | None], list[Frame]]:
    found: dict[tuple[str | None, str | None], list[Frame]] = {}
    for frame in run.frames:
        found.setdefault((frame.file, source_function(frame.name)), []).append(frame)
    return found


@of_last_run
def _taken(run: Run) -> Mapping[str, list[TracedInput]]:
    found: dict[str, list[TracedInput]] = {}
    for traced_input in run.traced_inputs:
        if not traced_input.source.startswith("___as_tensor("):  # a number of Python's that torch made dynamic
            found.setdefault(traced_input.frame, []).append(traced_input)
    return found
