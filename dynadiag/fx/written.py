"""The gate for Python that we write: the finished text is parsed, and refused unless it holds only what the writers can write.

The writers spell checked values (`dynadiag.fx.spelling`); this is the second door behind them, which knows nothing of them. It holds an
allow-list of statements and expressions, of names and of attributes. The fixed parts of a file (helpers, written as they stand in our own
source) are given by the caller and compared as syntax trees.
"""

from __future__ import annotations

import ast
import builtins
import functools
import io
import re
import tokenize
from collections.abc import Iterable

from dynadiag.dotted_names import lies_in
from dynadiag.errors import NotRebuildableError, shorten
from dynadiag.fx import allowed
from dynadiag.torch_compat.dispatch.functions import (
    NUMPY_ATTRIBUTES,
    is_spelled_function,
    numpy_spellings,
    tensor_attributes,
    tensor_methods,
    words,
)

_MODULES = re.compile(r"torch(\.[A-Za-z_]\w*)*|torchvision|math|operator|base64|zlib|faulthandler|resource", re.ASCII)
# What a file calls besides the functions of its graph.
_CHAINS = words(
    "torch.nn.Module torch.fx.symbolic_trace torch.device torch.manual_seed torch.get_rng_state torch.set_grad_enabled torch.compile"
    " torch.autocast torch.inference_mode torch.set_default_dtype torch.set_float32_matmul_precision"
    " torch.use_deterministic_algorithms torch.cuda.synchronize torch.Tensor torch.Size torch.randn torch.randint torch.zeros torch.ones"
    " torch.empty torch.empty_strided torch.tensor torch.float32 torch.autograd.grad faulthandler.dump_traceback_later"
)
_BUILTINS = words(
    "abs bool complex dict divmod enumerate float int isinstance len list max min pow range repr round slice str sum super tuple type zip"
    " Ellipsis"
)
_STATEMENTS = (ast.Return, ast.Assign, ast.Expr, ast.Pass, ast.If, ast.For, ast.With, ast.Assert, ast.AugAssign)
_EXPRESSIONS = (
    *(ast.Constant, ast.Name, ast.Attribute, ast.Call, ast.Tuple, ast.List, ast.Dict, ast.UnaryOp, ast.BinOp, ast.BoolOp, ast.Compare),
    *(ast.Subscript, ast.Slice, ast.Starred, ast.IfExp, ast.ListComp),
)
_PARTS = (
    ast.expr_context,
    ast.operator,
    ast.unaryop,
    ast.boolop,
    ast.cmpop,
    ast.keyword,
    ast.arguments,
    ast.arg,
    ast.withitem,
    ast.comprehension,
)
_ATTRIBUTE_OF_ARRAY = "numpy_attr_wrapper"
_OWN_OBJECTS = frozenset({"self", "module", "model"})


def checked(source: str, *, trusted: Iterable[str] = (), chains: Iterable[str] = ()) -> str:
    """The text itself. Raises NotRebuildableError when anything in it is not what a writer of ours can write.

    `trusted` are texts of our own, or of a script that the user runs, whose statements may stand in it as they are; `chains` are further
    dotted names that it may use, such as options of the compiler.
    """
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(source.encode()).readline)
        tree = ast.parse(source)
        gate = _Gate(tree, [ast.parse(text) for text in trusted], frozenset(chains))
        for statement in tree.body:
            gate.statement(statement)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise NotRebuildableError(f"it cannot be written as Python: {type(error).__name__}: {shorten(str(error), 120)}") from None
    if encoding != "utf-8":
        raise NotRebuildableError(f"the generated code declares the encoding {shorten(encoding, 40)}")
    return source


class _Gate:
    """Looks at every node of a file that is not among the trusted statements."""

    def __init__(self, tree: ast.Module, trusted: list[ast.Module], chains: frozenset[str]) -> None:
        fixed = [node for child in trusted for node in child.body]
        self._trusted = {kind: {ast.dump(node) for node in fixed if type(node) is kind} for kind in set(map(type, fixed))}
        self._chains = chains
        self._modules, self._bound = {"torch", "math", "operator"}, set[str]()
        for node in ast.walk(tree):  # once: a graph of 50,000 nodes is half a million of these
            if isinstance(node, ast.Name):
                if isinstance(node.ctx, ast.Store):
                    self._bound.add(node.id)
            elif isinstance(node, ast.Import):
                self._modules.update((name.asname or name.name).split(".")[0] for name in node.names)
            elif isinstance(node, ast.ImportFrom):
                self._modules.update(name.asname or name.name for name in node.names)
            elif isinstance(node, ast.arg):
                self._bound.add(node.arg)
            elif isinstance(node, ast.FunctionDef | ast.ClassDef):
                self._bound.add(node.name)
        # A name that stands for a module or a builtin is never one that the file gave a value.
        self._bound -= self._modules

    def statement(self, node: ast.stmt) -> None:
        """Refuse the statement unless all of it is allowed."""
        if type(node) in self._trusted and ast.dump(node) in self._trusted[type(node)]:
            return
        if isinstance(node, ast.Import):
            self._refuse_unless(all(_MODULES.fullmatch(name.name) and name.asname is None for name in node.names), node)
        elif isinstance(node, ast.FunctionDef):
            plain = not (node.decorator_list or node.returns or _type_parameters(node) or node.args.defaults or node.args.kwonlyargs)
            self._refuse_unless(plain and node.name not in self._modules, node)
            self._parts(node.args)
            self._statements(node.body)
        elif isinstance(node, ast.ClassDef):
            based = [ast.unparse(base) for base in node.bases] == ["torch.nn.Module"]
            self._refuse_unless(
                based and not (node.decorator_list or node.keywords or _type_parameters(node)) and node.name not in self._modules, node
            )
            self._statements(node.body)
        elif isinstance(node, _STATEMENTS):
            self._children(node)
        else:
            self._refuse(node)

    def _statements(self, nodes: list[ast.stmt]) -> None:
        for node in nodes:
            self.statement(node)

    def _children(self, node: ast.AST) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.stmt):
                self.statement(child)
            else:
                self._parts(child)

    def _parts(self, node: ast.AST) -> None:
        if isinstance(node, ast.Name):
            self._name(node)
        elif isinstance(node, ast.Attribute):
            self._attribute(node)
        elif isinstance(node, ast.Call):
            self._call(node)
        elif isinstance(node, (*_EXPRESSIONS, *_PARTS)):
            if isinstance(node, ast.arg):
                self._refuse_unless(node.annotation is None, node)
            self._children(node)
        else:
            self._refuse(node)

    def _name(self, node: ast.Name) -> None:
        known = node.id in self._bound or (isinstance(node.ctx, ast.Load) and (node.id in _BUILTINS or node.id in self._chains))
        self._refuse_unless(known, node)

    def _attribute(self, node: ast.Attribute) -> None:
        root, names = _chain(node)
        if isinstance(root, ast.Name) and root.id in self._modules:
            self._refuse_unless(self._is_allowed(".".join([root.id, *names])), node)
        elif isinstance(root, ast.Name) and root.id in _OWN_OBJECTS:
            self._refuse_unless(not any(name.startswith("__") for name in names), node)
        elif isinstance(root, ast.Call) and isinstance(root.func, ast.Name) and root.func.id == "super" and names == ["__init__"]:
            return
        else:
            self._refuse_unless(isinstance(node.ctx, ast.Load) and all(map(_is_of_a_value, names)), node)
            self._parts(root)

    def _is_allowed(self, chain: str) -> bool:
        if chain in _CHAINS or chain in self._chains or chain in allowed.constants():
            return True
        return is_spelled_function(chain) or (lies_in(chain, "torch.ops") and _is_operator(chain))

    def _call(self, node: ast.Call) -> None:
        function = node.func
        if isinstance(function, ast.Call):
            self._refuse_unless(ast.unparse(function) in numpy_spellings(_last_name(function)), function)
        elif isinstance(function, ast.Name) and function.id == "getattr":
            name = node.args[1] if len(node.args) in (2, 3) else None
            self._refuse_unless(isinstance(name, ast.Constant) and name.value in tensor_attributes(), node)
        elif isinstance(function, ast.Name):
            # A variable may be called as a builtin is (`input`), but then it is not called.
            self._refuse_unless(function.id in _BUILTINS or not hasattr(builtins, function.id), node)
            self._parts(function)
        elif isinstance(function, ast.Attribute):
            self._parts(function)
            if function.attr == _ATTRIBUTE_OF_ARRAY:
                name = node.args[1] if len(node.args) == 2 else None
                self._refuse_unless(isinstance(name, ast.Constant) and name.value in NUMPY_ATTRIBUTES, node)
        else:
            self._refuse(node)
        for argument in node.args:
            self._parts(argument)
        for keyword in node.keywords:
            self._refuse_unless(keyword.arg is not None, node)
            self._parts(keyword.value)

    def _refuse_unless(self, fine: object, node: ast.AST) -> None:
        if not fine:
            self._refuse(node)

    def _refuse(self, node: ast.AST) -> None:
        raise NotRebuildableError(
            f"the generated code contains `{shorten(ast.unparse(node), 80)}` ({type(node).__name__}), which is not allowed there"
        )


def _chain(node: ast.Attribute) -> tuple[ast.expr, list[str]]:
    """What stands before the first dot, and the names after it."""
    names: list[str] = []
    at: ast.expr = node
    while isinstance(at, ast.Attribute):
        names.append(at.attr)
        at = at.value
    return at, names[::-1]


def _is_of_a_value(name: str) -> bool:
    return name in tensor_methods() or name in tensor_attributes() or name == "data"


@functools.lru_cache(maxsize=4096)
def _is_operator(chain: str) -> bool:
    try:
        allowed.operator(chain)
    except NotRebuildableError:
        return False
    return True


def _type_parameters(node: ast.FunctionDef | ast.ClassDef) -> object:
    return getattr(node, "type_params", None)  # from Python 3.12


def _last_name(node: ast.Call) -> str:
    """The name that the argument of a wrapper of NumPy ends in: "add" of `numpy_operator_wrapper(operator.add)`."""
    argument = node.args[0] if len(node.args) == 1 else None
    if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
        return argument.value
    return argument.attr if isinstance(argument, ast.Attribute) else ""
