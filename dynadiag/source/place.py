"""A broken line in the source of its whole function: what is surely a tensor there, and whether a tensor would do for a number.

The text comes from strangers' logs: it is parsed, never compiled or run. What the text does not plainly show is answered with "no".
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType

from dynadiag.facts.user_frames import of_last_run
from dynadiag.model.location import Location
from dynadiag.model.run import Run
from dynadiag.source.function import Function, Use, parse_function
from dynadiag.source.imports import imports_of
from dynadiag.source.line import SourceLine, dotted, parse_line
from dynadiag.source.python_names import GIVES_NO_TENSOR, takes_tensors
from dynadiag.source.torch_names import (
    ANSWERS,
    EACH,
    ELEMENTWISE,
    HOST_READS,
    IN_PLACE,
    INFINITE_GRADIENT,
    PROPERTIES,
    REDUCTIONS,
    TAKES_NUMBER,
    TENSOR_ATTRIBUTES,
    TENSOR_METHODS,
    has_in_place_name,
    is_of_torch,
    is_torch_function,
    torch_function,
)

_ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow)
_MOST_STEPS = 6
_MODULES = frozenset(("functools", "itertools", "math", "numpy", "operator", "os", "random", "time", "torch"))
_OF_NUMBERS = _MODULES - {"torch"}
_NO_TENSORS = HOST_READS | PROPERTIES | GIVES_NO_TENSOR
_NOT_TENSORS = ANSWERS | PROPERTIES | {"is_tensor", "Size", "Generator"}

_SINGLE = "()"
"""Behind the name of a tensor: one value that is computed from all of it."""
_ONE_OF_FLOATS = frozenset(("sum", "mean", "max", "min", "amax", "amin", "norm", "median")) & REDUCTIONS
"""What gives one value, of the type of its operand where that is one of floats."""
_NO_ROOTS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, eq=False)
class Place(Function):
    """One row (from 1) of a function as it is written.

    `tensors` are the names that recorded graphs take as tensors (`all_tensors`: nothing else that the function only reads is one),
    `singles` those without dimensions, `dimensions` how many all others have where that is always the same. `no_history`: none requires a
    gradient; `floating`: all are floats; `no_gradient`: both; `float32`: all floats are of that type, and the text names no other. `texts`:
    the arguments that are a text written at the call, in all calls.
    """

    row: int = 1
    tensors: frozenset[str] = frozenset()
    all_tensors: bool = False
    singles: frozenset[str] = frozenset()
    no_gradient: bool = False
    no_history: bool = False
    dimensions: Mapping[str, int] = field(default_factory=dict)
    floating: bool = False
    float32: bool = False
    texts: frozenset[str] = frozenset()

    @cached_property
    def rows(self) -> tuple[str, ...]:
        """The rows of the text."""
        return tuple(self.code.split("\n"))

    def at(self, line: SourceLine, node: ast.AST) -> ast.expr | None:
        """The expression of the line in the function's tree; None where the row is not this line."""
        row = self.rows[self.row - 1] if self.row <= len(self.rows) else ""
        if not row.strip().startswith(line.code) or not isinstance(node, ast.expr):
            return None
        shift = len(row.encode()) - len(row.lstrip().encode()) - line.shift
        span = (self.row, node.col_offset + shift, (node.end_col_offset or 0) + shift)
        names = ast.Name | ast.Attribute  # `where` may be a name on the line and stand for `torch.where` in the function
        same = (
            one
            for one in self.index.nodes
            if isinstance(one, ast.expr) and (type(one) is type(node) or (isinstance(one, names) and isinstance(node, names)))
        )
        return next((one for one in same if (one.lineno, one.col_offset, one.end_col_offset) == span), None)

    def statement(self) -> ast.stmt | None:
        """The statement that begins on the row."""
        return next((node for node in self.index.nodes if isinstance(node, ast.stmt) and node.lineno == self.row), None)

    def inside(self, *kinds: type[ast.AST]) -> bool:
        """Whether the row is inside a statement of one of these kinds, of the function itself."""
        return any(isinstance(node, kinds) for node in self.around(self.statement()))

    def behind(self) -> Iterator[ast.AST]:
        """All nodes below the row, and those of a loop around it."""
        loops = [node for node in self.around(self.statement()) if isinstance(node, ast.For | ast.While)]
        around = {id(inner) for loop in loops for inner in ast.walk(loop)}
        yield from (child for child in self.index.nodes if getattr(child, "lineno", 0) > self.row or id(child) in around)

    def up_to(self, last: int) -> Iterator[ast.AST]:
        """All nodes of the body that begin up to this row, and those of a loop around the place."""
        body = {id(inner) for statement in self.node.body for inner in ast.walk(statement)}
        loops = {id(inner) for node in self.around(self.statement()) if isinstance(node, ast.For | ast.While) for inner in ast.walk(node)}
        yield from (
            child for child in self.index.nodes if id(child) in body and (getattr(child, "lineno", last + 1) <= last or id(child) in loops)
        )

    def is_written(self, name: str) -> bool:
        """Whether the function changes this tensor in place behind the row, so that another tensor of the same memory changes with it."""
        for node in (*ast.walk(self.statement() or ast.Pass()), *self.behind()):
            if isinstance(node, ast.AugAssign) and dotted(node.target) == name:
                return True
            if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store) and dotted(node.value) == name:
                return True
            if isinstance(node, ast.Attribute) and has_in_place_name(node.attr) and dotted(node.value) == name:
                return True
        return False

    def is_tensor(self, node: ast.expr, steps: int = 0) -> bool:
        """Whether the function shows that this is a tensor."""
        if steps > _MOST_STEPS:
            return False
        if isinstance(node, ast.BinOp):
            return self.is_tensor(node.left, steps + 1) or self.is_tensor(node.right, steps + 1)
        if isinstance(node, ast.UnaryOp):
            return self.is_tensor(node.operand, steps + 1)
        if isinstance(node, ast.Subscript):
            return _is_gradients(node.value) or (not _has_text(node.slice) and self.is_tensor(node.value, steps + 1))
        if isinstance(node, ast.Call):
            return self._gives_tensor(node, steps)
        name = dotted(node)
        return (isinstance(node, ast.Attribute) and node.attr == "data") or (name is not None and self._named_tensor(name, steps))

    def _gives_tensor(self, call: ast.Call, steps: int) -> bool:
        name = dotted(call.func) or ""
        if is_of_torch(name):
            return (torch_function(name) or "size") not in _NOT_TENSORS
        if name.partition(".")[0] in _OF_NUMBERS:  # `math.log(n)`
            return False
        if isinstance(call.func, ast.Attribute) and call.func.attr in TENSOR_METHODS | REDUCTIONS | IN_PLACE:
            return call.func.attr in TENSOR_METHODS or self.is_tensor(call.func.value, steps + 1)
        # A module that computes from a tensor; were it a tuple, no arithmetic would be done with it.
        return name.startswith("self.") and any(self.is_tensor(argument, steps + 1) for argument in call.args)

    def _named_tensor(self, name: str, steps: int) -> bool:
        if name.partition(".")[0] in _MODULES:
            return False
        if name in self.tensors and not any(map(_leaves_tensors, self.values(name))):
            return True
        if any(self.is_tensor(value, steps + 1) for value in self.values(name)) or self._is_gradient(name):
            return True
        return any(self._used_as_tensor(read) for read in self.reads(name))

    def _is_gradient(self, name: str) -> bool:
        """Whether the name is one of `a, b = torch.autograd.grad(...)`."""
        found = (node for node in self.index.nodes if isinstance(node, ast.Assign) and _is_gradients(node.value))
        targets = (target for child in found for target in child.targets if isinstance(target, ast.Tuple | ast.List))
        return any(dotted(each) == name for target in targets for each in target.elts)

    def _used_as_tensor(self, read: ast.expr) -> bool:
        parent = self.parent(read)
        if isinstance(parent, ast.Attribute):
            return parent.attr in IN_PLACE or parent.attr in TENSOR_METHODS | REDUCTIONS | TENSOR_ATTRIBUTES
        if isinstance(parent, ast.BinOp):
            return isinstance(parent.op, ast.MatMult)
        call = dotted(parent.func) or "" if isinstance(parent, ast.Call) and parent.args[:1] == [read] else ""
        return is_torch_function(call) and isinstance(parent, ast.Call) and takes_tensors(parent, read)

    def tensor_serves(self, node: ast.expr) -> bool:
        """Whether all that becomes of this number is arithmetic that ends in tensors: a tensor in its place then changes no type."""
        return self.number_use(node) is None

    def number_use(self, node: ast.expr) -> ast.AST | None:
        """The first use of the number that is not known to do with a tensor in its place; None where `tensor_serves`."""
        return next(filter(None, map(self._why_no_tensor_serves, self.uses(node))), None)

    def _why_no_tensor_serves(self, use: Use) -> ast.AST | None:
        for step in use.through:
            plain = isinstance(step, ast.Assign | ast.UnaryOp)
            if not plain and not (isinstance(step, ast.BinOp | ast.AugAssign) and isinstance(step.op, _ARITHMETIC)):
                return step
        serves = use.kind == "arithmetic" or (
            (isinstance(use.at, ast.Call) and use.value is not use.at.func and self._takes_tensor(use.at, use.value))
            or (
                isinstance(use.at, ast.Compare)
                and all(isinstance(op, ast.Lt | ast.LtE | ast.Gt | ast.GtE) for op in use.at.ops)
                and any(side is not use.value and self.is_tensor(side) for side in (use.at.left, *use.at.comparators))
            )
        )
        return None if serves else use.at

    def _takes_tensor(self, call: ast.Call, argument: ast.AST) -> bool:
        if isinstance(call.func, ast.Attribute) and call.func.attr in TAKES_NUMBER and self.is_tensor(call.func.value):
            return argument in call.args
        others = [one for one in call.args if one is not argument]
        both = torch_function(dotted(call.func)) in ("add", "sub", "mul", "div", "where")
        return both and argument in call.args and any(map(self.is_tensor, others))

    def only_returned(self, node: ast.expr) -> bool:
        """Whether the function returns the number and does nothing else with it."""
        uses = list(self.uses(node))
        names = {target.id for use in uses for step in use.through if isinstance(step, ast.Assign) for target in _names_in(step)}
        plain = all(isinstance(step, ast.Tuple | ast.List | ast.Dict | ast.Assign) for use in uses for step in use.through)
        return bool(uses) and plain and all(use.kind == "returned" for use in uses) and all(len(self.values(name)) == 1 for name in names)

    def same_shape(self, first: ast.expr, second: ast.expr) -> bool:
        """Whether both are tensors of one shape for certain: computed from one and the same name, element by element."""
        name, other = self._elements(first), self._elements(second)
        return name is not None and name == other

    def _elements(self, node: ast.expr, roots: Mapping[str, str] = _NO_ROOTS) -> str | None:
        """The tensor that the expression computes on element by element, alone with numbers; None for any other expression.

        `roots` has what the names that are being looked up stand for, if their other values agree.
        """
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub | ast.Mult):
            sides = [expression for expression in (node.left, node.right) if not self._is_number(expression)]
            found = {self._elements(side, roots) for side in sides}
            found -= {f"{root}{_SINGLE}" for root in found}  # `y - y.mean()` has the shape of `y`
            return found.pop() if len(found) == 1 else None
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            # By zero the other side has no gradient, not even where it is not chosen.
            single = self.no_gradient and isinstance(node.right, ast.Call | ast.Name) and self.is_single(node.right)
            return self._elements(node.left, roots) if single or self._is_number(node.right) else None
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return self._elements(node.operand, roots)
        elementwise = ELEMENTWISE if self.no_gradient else ELEMENTWISE - INFINITE_GRADIENT
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in elementwise:
            on = node.args if is_of_torch(dotted(node.func)) else [node.func.value, *node.args]
            numbers = (*on[1:], *(keyword.value for keyword in node.keywords))
            return self._elements(on[0], roots) if on and all(map(self._is_number, numbers)) else None
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _ONE_OF_FLOATS and not node.keywords:
            on = node.args if is_of_torch(dotted(node.func)) else [node.func.value, *node.args]
            root = self._elements(on[0], roots) if len(on) == 1 else None
            return None if root is None else root if root.endswith(_SINGLE) else f"{root}{_SINGLE}"
        name = dotted(node)
        return self._root(name, roots) if name is not None and self.is_tensor(node) else None

    def _is_number(self, node: ast.expr) -> bool:
        """Whether this is a plain number, or a name of the function that has no other values."""
        named = isinstance(node, ast.Name) and self.is_assigned(node.id) and all(map(_is_number, self.values(node.id)))
        return named or _is_number(node)

    def _root(self, name: str, roots: Mapping[str, str]) -> str:
        """The tensor that the name stands for (`y = x`), if that keeps its shape all the time; else the name."""
        if name in roots:
            return roots[name]
        root = self._first_root(name, roots)
        if root is None or root == name or self.is_local(root):
            return name
        kept = (*self.values(name)[1:], *self.values(root))
        return root if all(self._elements(item, {**roots, name: root}) == root for item in kept) else name

    def _first_root(self, name: str, roots: Mapping[str, str]) -> str | None:
        """What the first value of a name of the function is, or is computed from element by element: an argument, or an attribute that the
        function only reads, whose shape is that of the call.
        """
        first = next(iter(self.values(name)), None) if self.is_local(name) else None
        if first is None or dotted(first) is not None or not self.is_assigned(name):
            return None if first is None else dotted(first)
        root = self._elements(first, {**roots, name: name})
        if root is None or root.endswith(_SINGLE):
            return None
        stored = (node for node in self.index.body if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load))
        plain = self.index.stores.get(root, 0) == len(self.values(root)) and all(dotted(node) != root for node in stored)
        return root if plain and (root in self.index.arguments or "." in root) else None

    def is_single(self, node: ast.expr, seen: frozenset[str] = frozenset()) -> bool:
        """Whether the expression surely is one value: computed from sums over everything, numbers and other single values."""
        if isinstance(node, ast.Constant):
            return True
        if isinstance(node, ast.Compare):
            return all(self.is_single(expression, seen) for expression in (node.left, *node.comparators))
        if isinstance(node, ast.BoolOp):
            return all(self.is_single(item, seen) for item in node.values)
        if isinstance(node, ast.BinOp):
            return self.is_single(node.left, seen) and self.is_single(node.right, seen)
        if isinstance(node, ast.UnaryOp):
            return self.is_single(node.operand, seen)
        if isinstance(node, ast.Call):
            last = node.func.attr if isinstance(node.func, ast.Attribute) else dotted(node.func)
            of_torch = is_of_torch(dotted(node.func))
            if last in REDUCTIONS | {"any", "all"} and not node.keywords and len(node.args) == of_torch:
                return True
            inner = node.args[0] if node.args else node.func.value if isinstance(node.func, ast.Attribute) else None
            return last == "item" or (inner is not None and last in EACH and self.is_single(inner, seen))
        if isinstance(node, ast.Subscript):
            parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            owner = dotted(node.value) or ""
            return self.dimensions.get(owner) == len(parts) and not self.values(owner) and all(map(self._is_place, parts))
        name = dotted(node)
        if name is None or name in seen or (name in self.singles and not self.values(name)):
            return name is not None
        return self.is_assigned(name) and all(self.is_single(element, seen | {name}) for element in self.values(name))

    def asks_single(self, test: ast.expr) -> bool:
        """Whether a condition surely is one value: `is_single`, with what the recording shows to be no tensor."""
        nodes = [node for node in ast.walk(test) if isinstance(node, ast.Name | ast.Attribute)]
        numbers = {name for node in nodes if (name := dotted(node)) is not None and self._is_no_tensor(name) and not self.is_tensor(node)}
        return replace(self, singles=self.singles | numbers).is_single(test)

    def _is_no_tensor(self, name: str) -> bool:
        """Whether the recording shows that an argument, a global or an attribute of the object is no tensor: no graph took it as one.

        Graphs take tensors of closures and of modules by these names too (2.11 and 2.15).
        """
        owner, _, attribute = name.rpartition(".")
        if not self.all_tensors or name in self.tensors or owner not in ("", "self"):
            return False
        stored = (node for node in self.index.body if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load))
        return not any(dotted(node) == name for node in stored) if owner else not self.assigns(attribute)

    def _is_place(self, node: ast.expr) -> bool:
        """Whether this is surely one integer: a constant, or the variable of a loop over a `range`."""
        if isinstance(node, ast.Constant):
            return type(node.value) is int
        name = dotted(node)
        loops = [each.iter for each in self.index.nodes if isinstance(each, ast.For) and dotted(each.target) == name is not None]
        inner = [each.args[0] if isinstance(each, ast.Call) and dotted(each.func) == "reversed" else each for each in loops]
        counted = len(loops) > 0 and self.index.stores.get(name or "", 0) == len(loops)
        return counted and all(isinstance(each, ast.Call) and dotted(each.func) == "range" for each in inner)

    def whole(self, node: ast.AST) -> str:
        """The first row of the call or statement that the node is part of: a name or an f-string alone says little."""
        outer: ast.AST | None = node
        while outer is not None and not isinstance(outer, ast.Call | ast.stmt | ast.Compare | ast.Subscript | ast.BinOp):
            outer = self.parent(outer)
        return self.text(outer or node).split("\n")[0]

    def written(self, first: ast.stmt, last: ast.stmt) -> str:
        """The whole rows of the statements from the first to the last, without the margin."""
        return textwrap.dedent("\n".join(self.rows[first.lineno - 1 : last.end_lineno]))


def _names_in(statement: ast.Assign) -> list[ast.Name]:
    return [target for target in statement.targets if isinstance(target, ast.Name)]


def _leaves_tensors(value: ast.expr) -> bool:
    """Whether the value may be no tensor, though it is computed from one: `x = x.shape[0]`."""
    names = (dotted(node) or "" for node in ast.walk(value) if isinstance(node, ast.Attribute | ast.Name))
    return any(name.rpartition(".")[2] in _NO_TENSORS for name in names)


def _is_number(node: ast.expr) -> bool:
    inner = node.operand if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) else node
    return isinstance(inner, ast.Constant) and type(inner.value) in (int, float)


def _is_gradients(node: ast.expr) -> bool:
    """Whether this is a call of `torch.autograd.grad`, which gives a tuple of tensors."""
    return isinstance(node, ast.Call) and dotted(node.func) in ("torch.autograd.grad", "autograd.grad")


def _has_text(node: ast.expr) -> bool:
    """Whether a subscript asks a dictionary: `batch["x"]`."""
    return any(isinstance(child, ast.Constant) and isinstance(child.value, str) for child in ast.walk(node))


def line_at(where: Location | None, run: Run) -> SourceLine:
    """The recorded line of a place, with what names stand for in the function around it; empty where no line was recorded."""
    if where is None or not where.code:
        return parse_line(None)
    place = function_around(run, where.file, where.line)
    return parse_line(where.code, imports_of(where.file, run) if place is None else place.imports)


def function_around(run: Run, file: str, line: int | None) -> Place | None:
    """The line in the recorded source of the innermost function around it; None where that was not recorded whole."""
    if line is None:
        return None
    known = _places(run)
    if (file, line) not in known:
        known[file, line] = _find_function(run, file, line)
    return known[file, line]


@of_last_run
def _places(run: Run) -> dict[tuple[str, int], Place | None]:
    """What `function_around` has found: advice about one line asks for those of all others."""
    return {}


def _find_function(run: Run, file: str, line: int) -> Place | None:
    found = None
    for start, end, text in _sources(run).get(file, ()):
        if not start <= line < end:
            continue
        function = parse_function(text, imports_of(file, run))
        if function is not None and line <= start - 1 + (function.node.end_lineno or 0):
            found = Place(function.node, text, imports=function.imports, row=line - start + 1)
    return found


@of_last_run
def _sources(run: Run) -> Mapping[str, list[tuple[int, int, str]]]:
    """The recorded texts of functions by file, each with its first line and the one behind it."""
    found: dict[str, list[tuple[int, int, str]]] = {}
    for (file, start), text in sorted(run.blocks.items()):
        if text.lstrip().startswith(("def ", "async def ", "@")):
            found.setdefault(file, []).append((start, start + text.count("\n") + 1, text))
    return found
