"""The printed source of a graph, parsed with `ast`, with what FX prints beside values and above nodes. Nothing is ever run. No torch."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from dynadiag.errors import NotRebuildableError, shorten

# torch/fx/graph.py `append_stacktrace_summary` and `_ParsedStackTrace.get_summary_str` (same words in 2.11 and 2.15).
_FILE = re.compile(r"File: (?P<file>.*?):(?P<line>\d+) in (?P<function>[^,]*), code: (?P<code>.*)$")
_COMMENT = re.compile(r"^\s*#")


@dataclass(frozen=True, slots=True)
class StackNote:
    """The user line that a comment names."""

    file: str
    line: int
    function: str
    code: str

    @property
    def stack_trace(self) -> str:
        """The note spelled as a Python stack trace, as `node.meta["stack_trace"]` holds it."""
        return f'  File "{self.file}", line {self.line}, in {self.function}\n    {self.code}\n'


def is_comment(line: str) -> bool:
    """Whether the line holds nothing but a comment."""
    return _COMMENT.match(line) is not None


def read_note(line: str) -> StackNote | None:
    """The user line that this comment names; None when it says that there is none ("No stacktrace found for following nodes")."""
    found = _FILE.search(line)
    if found is None or len(found["line"]) > 9:
        return None
    return StackNote(found["file"], int(found["line"]), found["function"].strip(), found["code"].strip())


DTYPE_NAMES = {
    "bf16": "bfloat16",
    "f64": "float64",
    "f32": "float32",
    "f16": "float16",
    "f8e4m3fn": "float8_e4m3fn",
    "f8e5m2": "float8_e5m2",
    "f8e4m3fnuz": "float8_e4m3fnuz",
    "f8e5m2fnuz": "float8_e5m2fnuz",
    "f8e8m0fnu": "float8_e8m0fnu",
    "f4e2m1fnx2": "float4_e2m1fn_x2",
    "c32": "complex32",
    "c64": "complex64",
    "c128": "complex128",
    "i8": "int8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
    "b8": "bool",
    "u8": "uint8",
    "u16": "uint16",
    "u32": "uint32",
    "u64": "uint64",
}
_TENSOR = re.compile(r"^(?P<dtype>[a-z]+\d+\w*)\[(?P<shape>[^\]]*)\](?:\[(?P<stride>[^\]]*)\])?(?P<device>[a-z][\w:]*)?$")
_WRAPPED = re.compile(r"^(?P<class>[A-Za-z_]\w*)\((?P<inside>.*)\)$")


@dataclass(frozen=True, slots=True)
class TensorNote:
    """A tensor as annotated: sizes and strides as text (numbers or symbolic expressions), None where nothing was printed.

    `wrapper` is the class when it is no plain tensor ("Parameter", "DTensor", "TwoTensor").
    """

    dtype: str
    shape: tuple[str, ...]
    stride: tuple[str, ...] | None
    device: str | None
    wrapper: str | None = None


@dataclass(frozen=True, slots=True)
class SymbolNote:
    """A symbolic int, float or bool: its expression as printed."""

    expression: str


def parse_annotation(text: str | None) -> TensorNote | SymbolNote | None:
    """What the annotation says; None when it says nothing that we know."""
    if text is None:
        return None
    text = text.strip()
    plain = _TENSOR.match(text)
    if plain is not None:
        return _tensor(plain, None)
    wrapped = _WRAPPED.match(text)
    if wrapped is None:
        return None
    if wrapped["class"] == "Sym":
        return SymbolNote(wrapped["inside"].strip())
    core = _leading_tensor(wrapped["inside"])
    return None if core is None else _tensor(core, wrapped["class"])


def _tensor(found: re.Match[str], wrapper: str | None) -> TensorNote | None:
    dtype = DTYPE_NAMES.get(found["dtype"])
    if dtype is None:
        return None
    stride = None if found["stride"] is None else split_sizes(found["stride"])
    return TensorNote(dtype, split_sizes(found["shape"]), stride, found["device"], wrapper)


def _leading_tensor(inside: str) -> re.Match[str] | None:
    """The tensor at the start of a wrapper's text: "f32[4][1]cpu, S(0)" of a DTensor, or "f32[4][1]cpu" of a Parameter."""
    whole = _TENSOR.match(inside)
    if whole is not None:
        return whole
    end = inside.find(", ", inside.rfind("]"))
    return None if end < 0 else _TENSOR.match(inside[:end])


def split_sizes(text: str) -> tuple[str, ...]:
    """The sizes between two brackets; commas inside parentheses ("Max(1, s0)") do not part them."""
    parts: list[str] = []
    depth, start = 0, 0
    for position, char in enumerate(text):
        if char == "(":
            depth += 1
        elif char == ")":
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(text[start:position].strip())
            start = position + 1
    parts.append(text[start:].strip())
    return tuple(part for part in parts if part)


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
