"""Advice for operators whose result has a size that depends on the values in a tensor."""

from __future__ import annotations

import ast
import re
from collections.abc import Container, Iterator, Mapping, Sequence, Set
from types import MappingProxyType

from dynadiag.changes.break_context import BreakContext, Rule, Said, line_name, option, quoted, rewrite, withhold
from dynadiag.changes.kinds import IMPORTS_TORCH, SETS_OPTION, Kind
from dynadiag.model.report import Advice
from dynadiag.source.function import FunctionText
from dynadiag.source.line import dotted, root_of
from dynadiag.source.place import Place
from dynadiag.source.python_names import LISTS, NEEDS_SIZE
from dynadiag.source.torch_names import FACTORIES, HOST_READS, PRODUCTS, SPLITS, TAKES_UNKNOWN_SIZES, is_torch_function
from dynadiag.source.tree import called_method, called_name, ids_in, mentions, nodes_in, nodes_of, parameters_of, written_names

# The option leaves the break where it is: torch marks the first as of unknown size for what it reads, not for what it returns (2.15), and
# has nothing that tells the sizes of the other's results (2.11 and 2.15).
_NOT_IN_GRAPHS = (
    ("ctc_loss", "the operator reads lengths on the host, and no option lets a graph contain it"),
    ("lstsq", "no option lets a graph contain `lstsq`"),
)
_METHODS = HOST_READS | SPLITS
_BY_PYTHON = NEEDS_SIZE | {f"torch.{name}" for name in SPLITS}
_CHECKS = ("cross_entropy", "nll_loss")  # `Could not guard on data-dependent expression Eq(u0, 3)` (torch 2.15)

_NONE: Mapping[str, FunctionText] = MappingProxyType({})
_MOST_STEPS = 6
# With an unknown size their backward ended the program, or tracing them did, or the break came back there (AOTAutograd of 2.11).
_UNSURE = re.compile(
    r"^(?:(?:std|var)(?:_mean)?|cum(?:sum|prod|max|min)|logcumsumexp|(?:nan)?quantile|histc|prod|trace|diff|roll|solve|combinations|vander"
    r"|svd\w*|pinv|pdist|bilinear|instance_norm|i?r?s?t?fft|i?stft|avg_pool\dd)$|(?:^|_)bn\d*$|batch_?norm"
)
_ANEW = "and in a graph each size would be another version of the whole function"
_MAKE = frozenset(f"torch.{name}" for name in FACTORIES & TAKES_UNKNOWN_SIZES)
_OF_SIZES = (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv)
_ASKS = (ast.For, ast.While, ast.comprehension, ast.If, ast.IfExp, ast.Assert, ast.JoinedStr, ast.BoolOp, ast.Lambda, ast.With, ast.Yield)


def data_shapes(context: BreakContext) -> Iterator[Said]:
    """Operators whose output size depends on values: keep the size where a sum follows, else capture it as a symbol."""
    place = context.place
    if not context.editable or place is None:
        yield from withhold("the size of a result depends on values, and it is not known what the rest of the function does with it")
        return
    yield from _masked(context)
    called = {called_name(node) for node in context.line.nodes if isinstance(node, ast.Call)}
    if (never := next((why for name, why in _NOT_IN_GRAPHS if name in called), None)) is not None:
        yield from withhold(never)
    elif (asked := _of_numpy(place)) is not None:
        yield from withhold(f"{quoted(place.whole(asked))} gives a result whose size depends on values, and NumPy may ask for that size")
    elif (why := _why_not_carried(place, context.functions)) is not None:
        yield from withhold(f"the length of this result depends on values, and {why}")
    elif not all(item is not None and _why_not_carried(item, context.functions) is None for item in context.sizes):
        yield from withhold(
            "an option lets a graph carry the unknown size, but it applies to the whole program, and another line that broke may need the "
            "size in Python"
        )
    else:
        text = f"Keep {line_name(context)} and let the graph carry the unknown size of its result"
        yield from option(context, "shape-capture", "capture_dynamic_output_shape_ops", " = True", text)


def _why_not_carried(place: Place, functions: Mapping[str, FunctionText] = _NONE) -> str | None:
    """Why the function may need the size in Python from the row on; None where it lists, loops over, counts and prints nothing that was
    made of the result. `functions` are those of the user's that the run compiled, by their names.
    """
    if place.inside(ast.For, ast.While) and not isinstance(place.statement(), ast.For | ast.While):
        return "this line is in a loop, in which each iteration has a size of its own"
    own = ids_in(place.statement())
    reached = list(_reached(place))
    names = carried_names(place, reached)
    products = [child for child in reached if _is_product(child) and (id(child) in own or mentions(names, child))]
    if len(products) > 1 and not place.no_gradient:  # the backward of the second one failed (AOTAutograd of 2.11)
        return f"the gradient of {quoted(place.whole(products[1]))} may fail in a graph that does not know it"
    return _why_not_sized(place, reached, own, names, functions)


def _is_product(node: ast.AST) -> bool:
    return (isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult)) or (
        isinstance(node, ast.Call) and called_name(node) in PRODUCTS
    )


def _why_not_sized(
    place: Place, nodes: Sequence[ast.AST], own: Set[int], names: Set[str], functions: Mapping[str, FunctionText]
) -> str | None:
    """The first of the nodes that may need a size in Python: one of the row itself (`own`), or one that reads one of the `names`."""
    for node in nodes:
        asked = _asked(node)
        if asked and (mentions(names, *asked) or (id(node) in own and any(_computes(child, node) for child in asked))):
            return f"{quoted(place.whole(node))} may need that length in Python"
        if not isinstance(node, ast.Call):
            if _is_stored_by_key(place, node):
                return f"{quoted(place.whole(place.parent(node) or node))} may make a container larger, {_ANEW}"
            continue
        if (dotted(node.func) or "").endswith(_CHECKS) and any(keyword.arg == "weight" for keyword in node.keywords):
            return f"{quoted(place.whole(node))} checks the length of its `weight`, where the graph would break instead"
        if _UNSURE.search(called_name(node)) and (id(node) in own or mentions(names, node)):
            return f"{quoted(place.whole(node))} may fail in a graph that does not know it"
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("append", "appendleft", "extend"):
            if made_here(place, node) and node.func.attr != "extend":
                return f"{quoted(place.whole(node))} puts it into a list, and what becomes of that is not followed"
            return f"{quoted(place.whole(node))} may make a container larger, {_ANEW}"
        called = called_name(node)
        if called in functions and (id(node) in own or mentions(names, node)) and _may_ask_inside(functions, called):
            return f"{quoted(place.whole(node))} may need that length in Python"
    return None


def made_here(place: Place, call: ast.Call) -> bool:
    """Whether this is a method of a list that each call of the function makes, so that no version depends on its length."""
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    return (
        isinstance(owner, ast.Name)
        and place.is_assigned(owner.id)
        and all(isinstance(expression, ast.List) for expression in place.values(owner.id))
    )


def _asked(node: ast.AST) -> tuple[ast.AST, ...]:
    """What the node needs to know in Python: what it loops over, decides by, counts, lists or prints; empty for what a graph does."""
    if isinstance(node, ast.For | ast.comprehension):
        return (node.iter,)
    if isinstance(node, ast.While | ast.If | ast.IfExp | ast.Assert):
        return (node.test,)
    if isinstance(node, ast.JoinedStr):
        return (node,)
    method = called_method(node)
    return (node,) if isinstance(node, ast.Call) and (method in _METHODS or dotted(node.func) in _BY_PYTHON) else ()


def _computes(asked: ast.AST, node: ast.AST) -> bool:
    """Whether what is asked for contains an operator, besides the node that asks: `len(x.nonzero())`, but not `len(self.codes)`."""
    return any(isinstance(child, ast.Call | ast.Subscript | ast.BinOp | ast.Compare) and child is not node for child in nodes_in(asked))


def _may_ask_inside(functions: Mapping[str, FunctionText], name: str) -> bool:
    """Whether the function may need the size of what it is given: all its arguments are taken for it. What it calls is not followed."""
    function = functions[name].parsed()
    if function is None:
        return True
    given = parameters_of(function.node.args) - {"self"}
    place = Place(function.node, function.code, imports=function.imports, row=function.node.lineno)
    nodes = list(nodes_in(*function.node.body))
    return _why_not_sized(place, nodes, frozenset(), carried_names(place, nodes, given), _NONE) is not None


def carried_names(place: Place, nodes: Sequence[ast.AST], names: Set[str] = frozenset()) -> Set[str]:
    """The names that have what the row computes, or something made of it: all that a statement with one of them stores."""
    found = set(names) if names else written_names((place.statement(),))
    statements = [
        node for node in nodes if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.For | ast.NamedExpr | ast.withitem)
    ]
    for _ in range(_MOST_STEPS):
        more = {name for statement in statements if mentions(found, statement) for name in written_names((statement,))}
        if more <= found:
            break
        found |= more
    return found


def _is_stored_by_key(place: Place, node: ast.AST) -> bool:
    """Whether this puts something under a key that is no constant text into what is no tensor and outlives the call."""
    if not isinstance(node, ast.Subscript) or isinstance(node.ctx, ast.Load):
        return False
    kept = isinstance(node.value, ast.Name) and place.is_local(node.value.id)
    return not (kept or _is_text(node.slice) or place.is_tensor(node.value))


def _reached(place: Place) -> Iterator[ast.AST]:
    """All nodes of the row's statement and of those that may come behind it: none behind a `return`."""
    inner: ast.AST | None = place.statement()
    if place.inside(ast.For, ast.While, ast.Try):
        yield from (*nodes_in(inner), *place.behind())
        return
    rest: list[ast.AST] = [] if inner is None else [inner]
    while inner is not None and not any(isinstance(child, ast.Return | ast.Raise) for child in rest):
        parent = place.parent(inner)
        found = (getattr(parent, name, None) for name in ("body", "orelse"))
        block = next((item for item in found if isinstance(item, list) and inner in item), [])
        rest += block[block.index(inner) + 1 :] if block else []
        inner = None if parent is place.node else parent
    for node in rest:
        yield from nodes_in(node)


def _of_numpy(place: Place) -> ast.Call | None:
    """The first call of NumPy's from the row on: torch's own versions ask for sizes (`np.bincount` for an empty one, torch 2.15)."""
    found = (one for one in (*nodes_in(place.statement()), *place.behind()) if isinstance(one, ast.Call))
    return next((one for one in found if root_of(one.func) == "numpy"), None)


def symbol_serves(place: Place, node: ast.expr, seen: frozenset[str] = frozenset()) -> bool:
    """Whether all that becomes of the integer is sizes and slices of tensors, or a result: a graph has a symbol for each."""
    top: ast.AST = node
    sliced = False
    while isinstance(parent := place.parent(top), ast.Tuple | ast.List | ast.Slice | ast.keyword | ast.BinOp):
        if isinstance(parent, ast.BinOp) and not isinstance(parent.op, _OF_SIZES):
            break
        sliced, top = sliced or isinstance(parent, ast.Slice), parent
    if isinstance(parent, ast.Subscript):
        return sliced and (isinstance(parent.slice, ast.Tuple) or place.is_tensor(parent.value))
    if isinstance(parent, ast.Call) and _takes_size(place, parent, top):
        return True
    if isinstance(parent, ast.Assign) and len(parent.targets) == 1 and isinstance(parent.targets[0], ast.Name) and top is parent.value:
        name = parent.targets[0].id
        reads = place.reads(name) if name not in seen and place.is_bound_once(name) and place.is_local(name) else ()
        return bool(reads) and all(symbol_serves(place, read, seen | {name}) for read in reads)
    return isinstance(parent, ast.Return) or place.tensor_serves(node)


def only_kept(place: Place, node: ast.expr) -> bool:
    """Whether the function keeps the number in an attribute or a dictionary, and does nothing else with it there.

    Not in a list: each length of one that grows is compiled anew, and without the break that is the whole function. Not in a sum that lives
    over the calls: each of its values was compiled anew (torch 2.11).
    """
    top: ast.AST = node
    while isinstance(parent := place.parent(top), ast.Tuple | ast.List | ast.Dict):
        top = parent
    if not isinstance(parent, ast.Assign) or parent.value is not top or len(parent.targets) != 1:
        return False
    (target,) = parent.targets
    if isinstance(target, ast.Subscript):
        named = isinstance(target.slice, ast.Name) and not (place.is_tensor(target.slice) or _is_of_call(place, target.slice.id))
        return not place.is_tensor(target.value) and (named or _is_text(target.slice))
    if not isinstance(target, ast.Attribute) or place.is_tensor(target):
        return False
    return not place.reads(dotted(target) or "")


def _is_of_call(place: Place, name: str) -> bool:
    """Whether the name may have values of each call's own: an argument, or made from one. A dictionary with such keys grows, and each place
    of a list is another version.
    """
    given = parameters_of(place.node) - {"self"} - place.texts
    loops = [child for child in place.index.nodes if isinstance(child, ast.For | ast.comprehension)]
    iterated = [loop.iter for loop in loops if any(each.id == name for each in nodes_of(ast.Name, loop.target))]
    made = {each.id for expression in (*place.values(name), *iterated) for each in nodes_in(expression) if isinstance(each, ast.Name)}
    return name in given or any(text in given or (text != name and place.is_local(text)) for text in made)


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _takes_size(place: Place, call: ast.Call, argument: ast.AST) -> bool:
    """Whether the argument is a size, or a place, of the tensor that the call gives."""
    name = dotted(call.func) or ""
    if name.rpartition(".")[2] == "one_hot":
        return argument is not call.args[0]
    of_tensor = isinstance(call.func, ast.Attribute) and call.func.attr in TAKES_UNKNOWN_SIZES and place.is_tensor(call.func.value)
    return argument is not call.func and (name in _MAKE or of_tensor)


def leaves_to_torch(place: Place) -> bool:
    """Whether from the row on the function only calls torch, decides nothing and loops over nothing, so that no size need be known."""
    first = place.statement()
    if first is None or place.inside(ast.For, ast.While, ast.Try):
        return False
    nodes = (*nodes_in(first), *place.behind())
    unsure = any(isinstance(node, ast.Call) and _UNSURE.search(called_name(node)) for node in nodes) or sum(map(_is_product, nodes)) > 1
    return not unsure and not any(_may_ask(place, child) for child in nodes)


def calls_only_torch(place: Place, *also: str) -> bool:
    """Whether from the row on the function calls nothing else but what is named in `also`, or is in a module of that name: what it calls
    may break the graph that now reaches it.
    """
    calls = (node for node in (*nodes_in(place.statement()), *place.behind()) if isinstance(node, ast.Call))
    return not any(_is_unknown(place, call) for call in calls if not _is_named(call, also))


def _is_named(call: ast.Call, names: Container[str]) -> bool:
    """Whether this calls what has one of the names, something in a module of that name, or a method of what such a call gives."""
    name = dotted(call.func) or ""
    if isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Call) and dotted(call.func.value.func) in names:
        return True
    return name in names or name.rpartition(".")[0] in names


def _may_ask(place: Place, node: ast.AST) -> bool:
    return isinstance(node, _ASKS) or _is_unknown(place, node) or (isinstance(node, ast.Call) and dotted(node.func) in LISTS)


def _is_unknown(place: Place, node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    name = dotted(node.func) or ""
    if isinstance(node.func, ast.Attribute) and node.func.attr == "append" and isinstance(place.parent(node), ast.Expr):
        return False
    method = isinstance(node.func, ast.Attribute) and node.func.attr not in _METHODS - {"item"} and place.is_tensor(node.func.value)
    return not (is_torch_function(name) or name in LISTS | {"int", "float"} or method)


def _masked(context: BreakContext) -> Iterator[Advice]:
    """`x[x > 0].sum()` and `torch.masked_select(x, m).sum()` can keep their shape."""
    line = context.line
    for node in line.nodes:
        mask, values = None, None
        if isinstance(node, ast.Call) and dotted(node.func) == "torch.masked_select" and len(node.args) == 2:
            values, mask = node.args
        elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Compare) and isinstance(node.ctx, ast.Load):
            values, mask = node.value, node.slice
            if line.text(values) not in (line.text(mask.left), line.text(mask.comparators[0])):
                continue
        parent = line.parent(node)
        call = line.parent(parent) if isinstance(parent, ast.Attribute) and parent.attr == "sum" else None
        if mask is None or values is None or not isinstance(call, ast.Call) or call.args or call.keywords:
            continue
        after = line.replaced(node, f"torch.where({line.text(mask)}, {line.text(values)}, 0)")
        yield from rewrite(context, "mask-where", after, "Keep the shape and set the rest to zero: the sum is the same")
        return


def one_hot(context: BreakContext) -> Iterator[Said]:
    """`one_hot(x)` without `num_classes` reads the largest label."""
    yield from withhold(
        "`one_hot` without `num_classes=` reads the largest label; which number of classes would always be the same is not recorded"
    )


DATA_SHAPES: dict[str, tuple[Rule, ...]] = {
    "GB0036": (data_shapes,),
    "GB0037": (data_shapes,),
    "GB0246": (one_hot,),
}


KINDS = (
    Kind(slugs=("mask-where",), applied="rewrite", does="the line as the advice writes it"),
    Kind(slugs=("shape-capture",), applied="option", does=SETS_OPTION, asks=IMPORTS_TORCH),
)
