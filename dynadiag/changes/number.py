"""Advice for reading values out of tensors: `.item()`, casts to numbers, lists of elements, comparisons that give a Python bool."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import replace

from dynadiag.changes.branch import branches, why_no_check
from dynadiag.changes.break_context import BreakContext, Rule, Said, option, quoted, rewrite, withhold
from dynadiag.changes.condition import DRAWN, condition_of, only_chosen, tensor_of
from dynadiag.changes.kinds import IMPORTS_TORCH, SETS_OPTION, Kind
from dynadiag.changes.legality import raising
from dynadiag.changes.message import LOGGER, LOGGER_METHODS, loggers, prints
from dynadiag.changes.shape import calls_only_torch, leaves_to_torch, made_here, only_kept, symbol_serves
from dynadiag.model.report import Advice
from dynadiag.source.effects import blocks_around
from dynadiag.source.line import SourceLine, dotted
from dynadiag.source.place import Place
from dynadiag.source.torch_names import INFINITE_GRADIENT, MATH_FUNCTIONS, is_of_torch
from dynadiag.source.tree import ids_in, names_in
from dynadiag.source.uses import draws, in_hook, is_item, scalar_calls

_MOST_STEPS = 6
_EVERYWHERE = MATH_FUNCTIONS - INFINITE_GRADIENT
_TEXT = "Compute on the tensor with torch instead of math: every use computes with it (`detach()` because a number carries no gradient)"


def math_function(call: ast.Call) -> str | None:
    """The torch function that computes what a call of `math` computes, or None; `math.ceil`, `floor` and `trunc` give integers."""
    name = dotted(call.func) or ""
    return name[5:] if name.startswith("math.") and name[5:] in MATH_FUNCTIONS and len(call.args) == 1 else None


def _never_raises(place: Place, call: ast.AST | None) -> bool:
    """Whether `math` has a value for all that the argument can be, where torch has `nan` or infinity."""
    if not isinstance(call, ast.Call):
        return False
    if (function := math_function(call)) in _EVERYWHERE:
        return True
    return function == "sqrt" and _is_positive(place, call.args[0])


def _is_positive(place: Place, node: ast.expr, steps: int = 0) -> bool:
    """Whether the expression is surely not negative: a norm, a variance, a sum of squares or of what is counted."""
    if steps > _MOST_STEPS:
        return False
    if isinstance(node, ast.Call):
        name = dotted(node.func) or ""
        last = node.func.attr if isinstance(node.func, ast.Attribute) else name
        if last in ("norm", "var", "std", "abs", "square", "relu", "numel") or (last == "pow" and _is_two(node.args[-1:])):
            return True
        inner = node.args[0] if node.args and (is_of_torch(name) or last in ("float", "int")) else getattr(node.func, "value", None)
        return (
            last in ("sum", "mean", "item", "detach", "float", "max", "min") and inner is not None and _is_positive(place, inner, steps + 1)
        )
    if isinstance(node, ast.BinOp):
        if isinstance(node.op, ast.Pow):
            return _is_two([node.right])
        square = isinstance(node.op, ast.Mult) and ast.dump(node.left) == ast.dump(node.right)
        both = isinstance(node.op, ast.Add | ast.Mult) and all(
            _is_positive(place, expression, steps + 1) for expression in (node.left, node.right)
        )
        return square or both
    if isinstance(node, ast.Compare):
        return True
    if isinstance(node, ast.Constant):
        return isinstance(node.value, int | float) and node.value >= 0
    return (
        isinstance(node, ast.Name)
        and place.is_assigned(node.id)
        and all(_is_positive(place, item, steps + 1) for item in place.values(node.id))
    )


def _is_two(nodes: Sequence[ast.expr]) -> bool:
    return len(nodes) == 1 and isinstance(nodes[0], ast.Constant) and nodes[0].value == 2


def detached(inner: str) -> str:
    """The tensor without its gradient, as a number has none."""
    return inner if ".detach()" in inner else f"{inner}.detach()"


def of_math(line: SourceLine, read: ast.AST) -> ast.Call | None:
    """The call of `math` that the read is the argument of, alone or as a part of arithmetic."""
    node = read
    while isinstance(parent := line.parent(node), ast.BinOp | ast.UnaryOp):
        node = parent
    return parent if isinstance(parent, ast.Call) and node in parent.args and math_function(parent) is not None else None


def computed_with_torch(context: BreakContext, reads: Sequence[ast.Call], calls: Sequence[ast.Call]) -> Iterator[Advice]:
    """`math.exp(-t.item())` as `torch.exp(-t.detach())`."""
    line, place = context.line, context.place
    if place is None or not all(_never_raises(place, place.at(line, call)) for call in calls):
        return
    changes: list[tuple[ast.AST, str]] = [
        (call.func, f"torch.{math_function(call)}") for call in {id(item): item for item in calls}.values()
    ]
    changes += [(read, detached(tensor_of(line, read))) for read in reads]
    yield from rewrite(context, "item-math", line.replaced_all(changes), _TEXT)


def math_call(context: BreakContext, place: Place) -> Iterator[Advice]:
    """`math.sqrt(t)` of a tensor as `torch.sqrt(t.detach())`."""
    line = context.line
    for node in line.nodes:
        if isinstance(node, ast.Call) and (function := math_function(node)) is not None:
            call = place.at(line, node)
            argument = place.at(line, node.args[0])
            if call is None or argument is None or not (place.float32 and place.is_single(argument)):
                return
            if place.is_tensor(argument) and place.tensor_serves(call) and _never_raises(place, call):
                text = line.text(node.args[0])
                simple = isinstance(argument, ast.Name | ast.Attribute | ast.Call | ast.Subscript)
                after = line.replaced(node, f"torch.{function}({detached(text if simple else f'({text})')})")
                yield from rewrite(context, "item-math", after, _TEXT)
            return


_NO_LINE = "the line was not recorded, and what helps depends on what it does with the number that it reads (`int()`, `float()`, `.item()`)"
_NEEDED = "what the function does with the number, as far as its source was recorded, may need a Python number"


def scalar_reads(context: BreakContext) -> Iterator[Said]:
    """`.item()`, `float(t)`, `int(t)`: keep a tensor where all uses allow it, else capture a number that is only returned."""
    line = context.line
    reads = _all_reads(line, context.place) if context.editable else []
    if not reads and not context.line.code:
        yield from withhold(_NO_LINE)
    elif not reads:
        yield from withhold("an operator on this line needs a tensor's value as a Python number")
    elif in_hook(line, reads[0]):
        yield from withhold("the number is read in a hook, which runs in the backward pass")
    elif (test := condition_of(line)) is not None and not only_chosen(line, test, reads[0]):
        yield from branches(context, drop=reads[0])
    elif line.statement_is_call() and _is_logged(context):
        yield from loggers(context)
    elif line.statement_is_call() and any(True for _ in line.calls("print")):
        yield from prints(context)
    else:
        division = _division(context.place)
        if division is not None and context.place is not None and any(isinstance(node, ast.Try) for node in context.place.around(division)):
            yield from withhold(f"{quoted(context.place.whole(division))} raises a ZeroDivisionError that the function may catch")
            return
        zero = "" if division is None else "; zero then gives infinity, not a ZeroDivisionError"
        found = tuple(_kept(context, reads)) or tuple(_captured(context, reads))
        yield from (replace(advice, text=f"{advice.text}{zero}") for advice in found) if found else withhold(_who_needs(context, reads))


def _all_reads(line: SourceLine, place: Place | None) -> list[ast.Call]:
    """The reads on the line, and its other casts of what is surely a tensor: one that stays would break as before."""
    reads = scalar_calls(line)
    casts = (
        [call for call in line.calls("float", "int", "bool") if len(call.args) == 1 and call not in reads]
        if reads and place is not None
        else []
    )
    inside = ids_in(*reads)
    given = ((cast, place.at(line, cast.args[0]) if place is not None else None) for cast in casts if id(cast) not in inside)
    return reads + [item for item, tensor in given if tensor is not None and place is not None and place.is_tensor(tensor)]


def _division(place: Place | None) -> ast.BinOp | None:
    """The first division of two numbers by one that the row reads: Python raises an exception where it is zero."""
    own = None if place is None else place.statement()
    if place is None or own is None:
        return None
    found = raising(place.node, range(own.lineno, (own.end_lineno or own.lineno) + 1))
    return next((node for node in found if isinstance(node.op, ast.Div) and not place.is_tensor(node.left)), None)


def _is_logged(context: BreakContext) -> bool:
    """Whether the line is, or begins, a call of a logger's method."""
    call = context.line.only_call() or (context.line.outer_call() if context.line.begins_call() else None)
    owner, _, method = ((dotted(call.func) or "") if call is not None else "").rpartition(".")
    return method in LOGGER_METHODS and LOGGER.search(owner) is not None


def _who_needs(context: BreakContext, reads: list[ast.Call]) -> str:
    """The use that may need the number, where the function's source shows it."""
    place = context.place
    if place is not None and _counts(place):
        return "the function keeps a count, and without this break each of its values may be another version of the whole function"
    nodes = [] if place is None else [node for read in reads if (node := place.at(context.line, read)) is not None]
    use = next(filter(None, (place.number_use(node) for node in nodes)), None) if place is not None else None
    text = "" if use is None or place is None else place.whole(use)
    if isinstance(use, ast.Call) and (dotted(use.func) or "").rpartition(".")[2] in ("clamp", "clip") and not _is_both(use):
        return f"{quoted(text)} takes two numbers or two tensors, and this line reads one of the two"
    if (
        isinstance(use, ast.Call)
        and isinstance(use.func, ast.Attribute)
        and use.func.attr in ("append", "appendleft")
        and not (place is not None and made_here(place, use))
    ):
        return f"{quoted(text)} makes a list longer, and in a graph each length would be another version of the whole function"
    return f"{quoted(text)} may need a Python number" if text else _NEEDED


def _is_both(clamp: ast.Call) -> bool:
    """Whether the two bounds are made of one name: `torch.clamp(x, -k, k)`."""
    bounds = [keyword.value for keyword in clamp.keywords] + clamp.args[-2:]
    names = [names_in(bound) for bound in bounds[-2:]]
    return len(names) > 1 and bool(names[0] & names[1])


def _kept(context: BreakContext, reads: list[ast.Call]) -> Iterator[Advice]:
    """The tensors in place of the numbers, if all that becomes of them is arithmetic with tensors."""
    line, place = context.line, context.place
    if place is None or not place.float32 or any(_aliased(place, line, call) or dotted(call.func) in ("int", "bool") for call in reads):
        return
    if not all(_is_single(place, line, item) for item in reads):
        return  # a tensor of shape (1,) in the number's place gives the result another shape
    calls = [of_math(line, element) for element in reads]
    if any(calls):
        around = [place.at(line, entry) for entry in calls if entry is not None]
        if None not in calls and all(expression is not None and place.tensor_serves(expression) for expression in around):
            yield from computed_with_torch(context, reads, [one for one in calls if one is not None])
        return
    changes = []
    for read in reads:
        bound = _bounded(line, read)
        node = place.at(line, read if bound is None else bound[0])
        if node is None or not place.tensor_serves(node):
            return
        changes.append((read, detached(tensor_of(line, read))) if bound is None else bound)
    if len({id(node) for node, _ in changes}) == len(changes):
        doubles = "; what Python computed in double precision is then float32, so last digits may differ"
        digits = doubles if any(_meets_number(place, place.at(line, read)) for read in reads) else ""
        text = f"Keep a tensor instead of the number: every use computes with it (`detach()` because a number carries no gradient){digits}"
        yield from rewrite(context, "item-keep-tensor", line.replaced_all(changes), text)


def _meets_number(place: Place, node: ast.AST | None, seen: frozenset[str] = frozenset()) -> bool:
    """Whether Python computes with the number and another one before a tensor comes, here or where a name that has it is read."""
    around = None if node is None else place.parent(node)
    while isinstance(around, ast.UnaryOp):
        around = place.parent(around)
    if isinstance(around, ast.BinOp):
        return not any(map(place.is_tensor, (around.left, around.right)))
    names = {target.id for target in around.targets if isinstance(target, ast.Name)} - seen if isinstance(around, ast.Assign) else set()
    return any(_meets_number(place, read, seen | names) for name in names for read in place.reads(name))


def _is_single(place: Place, line: SourceLine, read: ast.Call) -> bool:
    """Whether the tensor that is read surely has no dimensions."""
    inner: ast.expr | None = place.at(line, read)
    while isinstance(inner, ast.Call) and (is_item(inner) or dotted(inner.func) in ("float", "int", "bool")):
        inner = inner.func.value if isinstance(inner.func, ast.Attribute) else inner.args[0]
    return inner is not None and place.is_single(inner)


def _aliased(place: Place, line: SourceLine, read: ast.Call) -> bool:
    """Whether the tensor that is read may change later in place: a number would not change with it."""
    inner = place.at(line, read)
    while isinstance(inner, ast.Call) and not inner.args and isinstance(inner.func, ast.Attribute):
        if inner.func.attr not in ("item", "detach", "cpu", "float"):
            return False
        inner = inner.func.value
    if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Name) and inner.args:
        inner = inner.args[0]
    base = inner.value if isinstance(inner, ast.Subscript) else inner
    name = None if base is None else dotted(base)
    return inner is None or (name is not None and (place.is_written(name) or not calls_only_torch(place, "math")))


def _bounded(line: SourceLine, read: ast.Call) -> tuple[ast.Call, str] | None:
    """`max(y.item(), 1e-5)` as `y.detach().clamp(min=1e-5)`, where the other bound is a plain number."""
    use = line.parent(read)
    if not isinstance(use, ast.Call) or dotted(use.func) not in ("max", "min") or use.keywords or len(use.args) != 2:
        return None
    other = next(argument for argument in use.args if argument is not read)
    if not isinstance(other, ast.Constant) or type(other.value) not in (int, float):
        return None
    return use, f"{detached(tensor_of(line, read))}.clamp({'min' if dotted(use.func) == 'max' else 'max'}={line.text(other)})"


def _captured(context: BreakContext, reads: list[ast.Call]) -> Iterator[Advice]:
    """`capture_scalar_outputs`, which holds for the whole program: only where no number that any line reads decides anything."""
    read = [(context.line, context.place, call) for call in reads]
    if context.place is None or _counts(context.place) or not (calls_only_torch(context.place) or _traces_behind(context, context.place)):
        return
    kept = all(_is_kept(*pair) for pair in read)
    if not (context.returns or kept) or not all(_is_kept(*entry) or _symbol_serves(context, *entry) for entry in (*context.reads, *read)):
        return
    text = (
        "Let Dynamo capture the number in the graph: nothing that the function does with it needs its value while it is traced (what takes "
        "it may recompile once more)"
    )
    if any(dotted(item.func) == "float" and not _is_detached(item.args[0]) for item in reads):
        text += "; torch's warning about `float` of a tensor that requires grad is then not given"
    yield from option(context, "item-capture", "capture_scalar_outputs", " = True", text)


def _counts(place: Place) -> bool:
    """Whether the function keeps a count outside of itself: code behind a break has it as a local, a whole function guards on its value."""
    shared = place.index.shared
    counts = [child for child in place.nodes(ast.AugAssign) if child is not place.statement()]
    return any(
        (isinstance(count.target, ast.Attribute) or dotted(count.target) in shared)
        and not (place.is_tensor(count.target) or place.is_tensor(count.value))
        for count in counts
    )


def _is_detached(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("detach", "item")


def _traces_behind(context: BreakContext, place: Place) -> bool:
    """Whether the recording shows that what the graph then reaches can be traced.

    All other code of the run was compiled, and where the whole function ran eager (a break in a loop), it keeps no count: a number of a
    module's that changes with each call is another version each time.
    """
    counts = (node for node in place.nodes(ast.AugAssign) if node is not place.statement())
    return context.only_reads and not (blocks_around(place) and any(isinstance(count.target, ast.Attribute) for count in counts))


def _is_kept(line: SourceLine, place: Place | None, read: ast.Call | None) -> bool:
    """Whether the number that is read, as it is or as `int(...)` and `float(...)` make it, is only put away."""
    node = None if place is None or read is None else place.at(line, read)
    if place is None or node is None:
        return False
    around = place.parent(node)
    cast = isinstance(around, ast.Call) and dotted(around.func) in ("float", "int") and around.args == [node]
    return only_kept(place, around if cast and isinstance(around, ast.Call) else node)


def _symbol_serves(context: BreakContext, line: SourceLine, place: Place | None, read: ast.Call | None) -> bool:
    node = None if place is None or read is None else place.at(line, read)
    if place is None or node is None:
        return False
    parent = line.parent(read) if read is not None else None
    cast = place.at(line, parent) if isinstance(parent, ast.Call) and dotted(parent.func) in ("float", "int") else None
    if place.only_returned(node) or (cast is not None and place.only_returned(cast)) or place.tensor_serves(node):
        return True
    here = context.place is not None and context.place.rows == place.rows  # what another function returns may be asked for its size
    return here and symbol_serves(place, node) and leaves_to_torch(place)


def data_operators(context: BreakContext) -> Iterator[Said]:
    """Operators that return a Python value (`GB0033`): use the one that returns a tensor, where all uses allow it."""
    line, place = context.line, context.place
    found: tuple[Advice, ...] = ()
    if context.editable and place is not None:
        found = (*_compared(context, place), *math_call(context, place), *_listed(context, place))
    if draws(line):
        yield from withhold(DRAWN)
    elif isinstance(line.statement, ast.Assert) and (why := why_no_check(context)) is not None:
        yield from withhold(why)
    else:
        yield from found or withhold(_NEEDED)


def _compared(context: BreakContext, place: Place) -> Iterator[Advice]:
    """`assert torch.equal(a, b)`: a tensor of one truth value becomes a check in the graph."""
    line = context.line
    for name, new in (("torch.equal", "({0} == {1}).all()"), ("torch.allclose", "torch.isclose({0}, {1}).all()")):
        for call in line.calls(name):
            if isinstance(line.statement, ast.Assert) and line.statement.test is call and len(call.args) == 2 and not call.keywords:
                after = line.replaced(call, new.format(*map(line.text, call.args)))
                text = (
                    "Compare on the device: the assertion then becomes a check in the graph, which raises RuntimeError, not AssertionError "
                    "(the shapes must be equal)"
                )
                yield from rewrite(context, "equal-tensor", after, text)


def lists(context: BreakContext) -> Iterator[Said]:
    """`t.tolist()`: the elements as 0-d tensors where all uses allow it."""
    found = tuple(_listed(context, context.place)) if context.editable and context.place is not None else ()
    yield from found or withhold("a list of Python numbers is needed here, as far as the source was recorded")


def _listed(context: BreakContext, place: Place) -> Iterator[Advice]:
    """`a, b = t.tolist()` whose numbers are only computed with."""
    line = context.line
    statement = line.statement
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1 or not isinstance(statement.value, ast.Call):
        return
    call, target = statement.value, statement.targets[0]
    listed = call.func if isinstance(call.func, ast.Attribute) and call.func.attr == "tolist" and not call.args else None
    names = [element.id for element in target.elts if isinstance(element, ast.Name)] if isinstance(target, ast.Tuple) else []
    if listed is None or not names or len(names) != len(getattr(target, "elts", ())) or place.is_written(dotted(listed.value) or ""):
        return
    if all(place.is_bound_once(name) and all(map(place.tensor_serves, place.reads(name))) for name in names):
        text = "Use the elements as 0-d tensors instead of Python numbers: every use computes with them"
        yield from rewrite(context, "tolist-unbind", line.replaced(call, f"{line.text(listed.value)}.detach().unbind()"), text)


def needs_number(context: BreakContext) -> Iterator[Said]:
    """A list indexed by a tensor, `range(tensor)`, a symbol that must be decided: Python needs the number."""
    yield from withhold("Python needs a tensor's value here, which is only known after the graph has run")


SCALARS: dict[str, tuple[Rule, ...]] = {
    "GB0124": (scalar_reads,),
    "GB0170": (branches,),
    "GB0035": (branches,),
    "GB0034": (branches,),
    "GB0033": (data_operators,),
    "GB0070": (needs_number,),
    "GB0109": (lists,),
    "GB0213": (data_operators,),
    "GB7596": (needs_number,),
    "GB2582": (branches,),
}


KINDS = (
    Kind(
        slugs=("item-keep-tensor", "tolist-unbind"),
        applied="rewrite",
        does="a tensor takes the place of a number",
        asks="no division, power or remainder by the number: Python raises an error for zero. A tensor that only has another name is "
        "cloned, "
        "so that it keeps its value",
        keeps_tensor=True,
    ),
    Kind(slugs=("item-capture",), applied="option", does=SETS_OPTION, asks=IMPORTS_TORCH),
    Kind(slugs=("equal-tensor",), applied="rewrite", gives_up="another exception is raised, and later"),
    Kind(
        slugs=("item-math",),
        applied="rewrite",
        gives_up="math raises an error for a number outside its domain, torch gives NaN",
    ),
)
