"""The printed source of a graph, parsed with `ast` into classes, parameters and statements. Nothing is ever run. No torch.

FX prints a graph module as a class with one method `forward` and, nested inside, one class for each sub graph module
(torch/fx/graph_module.py `_print_readable`). Class names need not be identifiers (`class <lambda>(torch.nn.Module)`).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from dynadiag.errors import NotRebuildableError, shorten
from dynadiag.fx.stack_notes import StackNote, is_comment, read_note

LONGEST_TEXT_BYTES = 64 * 1024 * 1024
# "sin = f(x);  x = y = None": FX frees values after their last use, which would be half of the syntax tree.
_FREED = re.compile(r"^(?P<kept>[^#]*?);  ?(?:[A-Za-z_]\w{0,200} = )+None$")
_CLASS_LINE = re.compile(r"^(\s*)class (.+)\(torch\.nn\.Module\):\s*$")


@dataclass(frozen=True, slots=True)
class Parameter:
    """One argument of `forward`; `annotation` is the text FX printed ("f32[4, 4][4, 1]cpu") or source of another annotation."""

    name: str
    annotation: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphSource:
    """One printed graph module: its parameters, its statements with the user line above each, its sub graphs by attribute name."""

    name: str
    parameters: tuple[Parameter, ...]
    statements: tuple[ast.stmt, ...]
    notes: Mapping[int, StackNote | None] = field(repr=False)
    children: Mapping[str, GraphSource] = field(default_factory=dict)

    def note(self, statement: ast.stmt) -> StackNote | None:
        """The user line printed above this statement, None when there is none."""
        return self.notes.get(statement.lineno)


def read_graph_source(text: str) -> GraphSource:
    """The parsed graph. Raises NotRebuildableError when the text is no printed FX graph."""
    if len(text) > LONGEST_TEXT_BYTES:
        raise NotRebuildableError(f"the text has {len(text)} characters, more than the limit of {LONGEST_TEXT_BYTES}")
    lines, class_names, notes = _prepare(text)
    try:
        tree = ast.parse("\n".join(lines))
    except SyntaxError as error:
        line = lines[error.lineno - 1].strip() if error.lineno and error.lineno <= len(lines) else ""
        raise NotRebuildableError(f"line {error.lineno} is not valid Python: {shorten(line, 100)}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise NotRebuildableError(f"the text cannot be parsed: {type(error).__name__}: {shorten(str(error), 100)}") from None
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    if len(classes) != 1 or len(tree.body) != 1:
        raise NotRebuildableError("the text is not one printed graph module (one class with a forward method)")
    return _read_class(classes[0], class_names, notes)


def _prepare(text: str) -> tuple[list[str], dict[str, str], dict[int, StackNote | None]]:
    """Lines fit for `ast`: comments blanked and remembered, class names that are no identifiers replaced."""
    lines: list[str] = []
    names: dict[str, str] = {}
    notes: dict[int, StackNote | None] = {}
    current: StackNote | None = None
    for number, raw in enumerate(text.split("\n"), start=1):
        line = raw
        if is_comment(raw):
            current, line = read_note(raw), ""
        elif (header := _CLASS_LINE.match(raw)) is not None:
            replacement = f"Graph_{len(names)}"
            names[replacement], current = header[2], None
            line = f"{header[1]}class {replacement}:"
        elif raw.endswith("None") and (freed := _FREED.match(raw)) is not None:
            line = freed["kept"]
        notes[number] = current
        lines.append(line)
    return lines, names, notes


def _read_class(node: ast.ClassDef, names: Mapping[str, str], notes: Mapping[int, StackNote | None]) -> GraphSource:
    if node.decorator_list or node.bases or node.keywords or node.name not in names:
        raise NotRebuildableError(f"class {shorten(node.name, 60)} is not a class as FX prints it")
    forward: ast.FunctionDef | None = None
    children: dict[str, GraphSource] = {}
    for member in node.body:
        if isinstance(member, ast.ClassDef):
            child = _read_class(member, names, notes)
            children[child.name] = child
        elif isinstance(member, ast.FunctionDef) and member.name == "forward" and forward is None:
            forward = member
        elif not _is_text(member):
            raise NotRebuildableError(
                f"class {shorten(names[node.name], 60)} contains {type(member).__name__}, which FX never prints there"
            )
    if forward is None:
        raise NotRebuildableError(f"class {shorten(names[node.name], 60)} has no forward method")
    statements = tuple(statement for statement in forward.body if not _is_text(statement) and not isinstance(statement, ast.Pass))
    return GraphSource(name=names[node.name], parameters=_parameters(forward), statements=statements, notes=notes, children=children)


def _is_text(statement: ast.stmt) -> bool:
    """A string that stands alone (FX_GRAPH_SHOW_META prints node.meta so)."""
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant) and isinstance(statement.value.value, str)


def _parameters(forward: ast.FunctionDef) -> tuple[Parameter, ...]:
    arguments = forward.args
    if forward.decorator_list or arguments.kwonlyargs or arguments.posonlyargs or arguments.vararg or arguments.kwarg:
        raise NotRebuildableError("forward has decorators, * or keyword-only arguments, which FX never prints for a captured graph")
    if arguments.defaults and not all(isinstance(default, ast.Constant) for default in arguments.defaults):
        raise NotRebuildableError("forward has a default argument that is not a constant")
    if not arguments.args or arguments.args[0].arg != "self":
        raise NotRebuildableError("forward has no self argument")
    return tuple(Parameter(argument.arg, annotation_text(argument.annotation)) for argument in arguments.args[1:])


def annotation_text(node: ast.expr | None) -> str | None:
    """What an annotation says, as text: the string FX printed, or the source of the expression. Never evaluated."""
    if node is None:
        return None
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return ast.unparse(node)


def every_graph(source: GraphSource) -> Iterator[GraphSource]:
    """The graph and all graphs inside it."""
    yield source
    for child in source.children.values():
        yield from every_graph(child)
