"""The module that puts rewritten copies in the place of functions of installed packages, when these are as they were; no package is edited.

A copy gets the code of the original (`__code__`), so globals, defaults, closures, decorators and identity stay those of the original.
"""

from __future__ import annotations

import ast
import hashlib
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import libcst as cst
from libcst import matchers

from dynadiag.changes.change import Candidate
from dynadiag.changes.library_messages import WARN
from dynadiag.changes.operator import PREFIX as OPERATOR
from dynadiag.changes.syntax import rows_of, tree_of
from dynadiag.errors import EditError

NAME = "dynadiag_patches"
IMPORT = f"import {NAME}  # noqa: F401 (first: it replaces functions of installed packages by proven copies)"

_HEAD = '''"""Functions of installed packages, rewritten by `dynadiag fix` and proven for the program that imports this file first.

Each takes the place of its original only while that one is, by its source, what it was made for; else one warning is given and the
original stays. No package is edited: without the import of this file all is as before.
"""

import hashlib
import importlib.abc
import importlib.util
import inspect
import linecache
import sys
import types
import warnings


def _replace(module, path, rows, made_for, make):
    """Give the function of this name the code of its copy; `made_for` is the hash of the original's `rows` lines."""
    owner = module
    for name in path[:-1]:
        owner = getattr(owner, name, None)
    function = vars(owner).get(path[-1]) if owner is not None else None
    function = inspect.unwrap(getattr(function, "fget", None) or getattr(function, "__func__", function))
    code = getattr(function, "__code__", None)
    lines = [] if code is None else linecache.getlines(code.co_filename)[code.co_firstlineno - 1 :][:rows]
    new = make().__code__
    if hashlib.sha256("".join(lines).encode()).hexdigest() != made_for or new.co_freevars != code.co_freevars:
        warnings.warn(f"{module.__name__}.{'.'.join(path)} is not the one that {__name__} was made for: it stays as it is", stacklevel=2)
        return
    function.__code__ = new


def _say_while_tracing(module, name, owner, method):
    """A function for the module that gives a message when Dynamo traces a call of it: the method gives each once anyway."""
    import torch._dynamo

    def say(*words):
        target = module
        for part in owner:
            target = getattr(target, part)
        getattr(target, method)(*words)

    setattr(module, name, torch._dynamo.assume_constant_result(say))


def _warn_while_tracing(module, name):
    """A function for the module that gives a warning, from a line of the module, when Dynamo traces a call of it."""
    import torch._dynamo

    def warn(line, message, category=UserWarning):
        registry = vars(module).setdefault("__warningregistry__", {})
        warnings.warn_explicit(message, category, module.__file__, line, module.__name__, registry)

    setattr(module, name, torch._dynamo.assume_constant_result(warn))


def _define_operator(module, name, written, schema, make):
    """An operator of torch for the module, which runs lines of one of its functions as they are written."""
    import torch

    run = types.FunctionType(make().__code__, vars(module), name)
    tags = (torch.Tag.cudagraph_unsafe,)
    setattr(module, name, torch.library.custom_op(f"dynadiag::{name}", run, mutates_args=written, schema=schema, tags=tags))


class _Finder(importlib.abc.MetaPathFinder):
    """Lets `_apply` change a module when it has been imported."""

    def find_spec(self, fullname, path=None, target=None):
        changes = _WAITING.pop(fullname, None)
        spec = None if changes is None else importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            _apply(module, changes)

        spec.loader.exec_module = exec_module
        return spec


def _apply(module, changes):
    for change, *words in changes:
        change(module, *words)

'''
_TAIL = """
for _name in [one for one in _WAITING if one in sys.modules]:
    _apply(sys.modules[_name], _WAITING.pop(_name))
sys.meta_path.insert(0, _Finder())
"""


@dataclass(frozen=True, kw_only=True)
class _Copy:
    """A function to replace: where it is, its lines in the original, and its copy."""

    module: str
    path: tuple[str, ...]
    count: int
    made_for: str
    function: cst.FunctionDef


def patch_module(originals: Mapping[str, str], new: Mapping[str, str], modules: Mapping[str, str], changes: Sequence[Candidate]) -> str:
    """The text of the module, for the new texts of files whose dotted names are in `modules`. Raises EditError where it cannot be made."""
    copies: dict[tuple[str, tuple[str, ...]], _Copy] = {}
    helpers: dict[tuple[str, str], tuple[str, tuple[str, ...]]] = {}
    for change in changes:
        for edit, span in zip(change.edits, change.spans, strict=True):
            if edit.file not in modules:
                continue
            module = modules[edit.file]
            if edit.old:
                path = _path(ast.parse(originals[edit.file]), span.begin)
                copies.setdefault((module, path), _copy(module, path, originals[edit.file], new[edit.file]))
            else:
                name, words, rows = _helper(edit.new)
                helpers[module, name] = words, rows
    return "".join(f"{row}\n" for row in _rows(list(copies.values()), helpers))


def _rows(copies: Sequence[_Copy], helpers: Mapping[tuple[str, str], tuple[str, tuple[str, ...]]]) -> Iterator[str]:
    yield from _HEAD.splitlines()
    waiting: dict[str, list[str]] = {}
    for (module, name), (words, rows) in helpers.items():
        if rows:
            yield from ("", f"def _make_{name}():", *(f"    {row}" if row else "" for row in rows), "", f"    return {name}", "")
        waiting.setdefault(module, []).append(words)
    for number, item in enumerate(copies, start=1):
        yield from ("", *_nested(item, f"_copy_{number}"), "")
        waiting.setdefault(item.module, []).append(f"(_replace, {item.path!r}, {item.count}, {item.made_for!r}, _copy_{number})")
    yield from ("", "_WAITING = {")
    for module, entries in waiting.items():
        yield from (f"    {module!r}: [", *(f"        {entry}," for entry in entries), "    ],")
    yield "}"
    yield from _TAIL.splitlines()


def _nested(item: _Copy, name: str) -> list[str]:
    """A function that gives the copy, made inside classes of the same names: `super()` and names that begin with two underscores mean what
    they did, and a name that is its own or that of its class is a global one.
    """
    inner: cst.FunctionDef | cst.ClassDef = item.function
    for owner in reversed(item.path[:-1]):
        inner = cst.ClassDef(cst.Name(owner), cst.IndentedBlock([inner]))
    first, last = cst.parse_module(f"global {item.path[0]}\nreturn {'.'.join(item.path)}\n").body
    last = last.with_changes(leading_lines=[cst.EmptyLine(indent=False)])
    made = cst.FunctionDef(cst.Name(name), cst.Parameters(), cst.IndentedBlock([first, inner, last]))
    return rows_of(cst.Module([]).code_for_node(made).rstrip("\n"))


def _path(tree: ast.Module, row: int) -> tuple[str, ...]:
    """The classes and the outermost function around a row."""
    found: list[str] = []
    block: list[ast.stmt] = tree.body
    while True:
        kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        node = next(
            (statement for statement in block if isinstance(statement, kinds) and _first(statement) <= row <= (statement.end_lineno or 0)),
            None,
        )
        if node is None:
            raise EditError("the line is in no function of the module or of its classes")
        if sum(getattr(child, "name", None) == node.name for child in block) != 1:
            raise EditError(f"`{node.name}` is defined more than once")
        found.append(node.name)
        if not isinstance(node, ast.ClassDef):
            return tuple(found)
        block = node.body


def _first(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> int:
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])


def _copy(module: str, path: tuple[str, ...], original: str, new: str) -> _Copy:
    tree = tree_of(original)
    was, now = _at(tree.module, path), _at(cst.parse_module(new), path)
    first, last = tree.row(was), tree.end(was)
    text = "".join(list(io.StringIO(original))[first - 1 : last])
    made_for = hashlib.sha256(text.encode()).hexdigest()
    return _Copy(module=module, path=path, count=last - first + 1, made_for=made_for, function=_without_rest(now))


def _at(node: Any, path: Sequence[str]) -> cst.FunctionDef:
    for name in path:
        body = node.body if isinstance(node, cst.Module) else node.body.body
        node = next(
            statement for statement in body if isinstance(statement, cst.FunctionDef | cst.ClassDef) and statement.name.value == name
        )
    return cst.ensure_type(node, cst.FunctionDef)


def _without_rest(function: cst.FunctionDef) -> cst.FunctionDef:
    """The function without decorators, annotations and docstring, and with defaults of None: what `__code__` does not hold."""
    if not isinstance(function.body, cst.IndentedBlock):
        raise EditError(f"`{function.name.value}` stands on one line")
    body = list(function.body.body)
    if function.get_docstring(clean=False) is not None and len(body) > 1:
        body = body[1:]
    body[0] = body[0].with_changes(leading_lines=())
    parameters = matchers.replace(function.params, matchers.Param(), _plain)
    return function.with_changes(
        decorators=(),
        lines_after_decorators=(),
        leading_lines=(),
        returns=None,
        params=parameters,
        body=function.body.with_changes(body=body, header=cst.TrailingWhitespace()),
    )


def _plain(parameter: Any, _: object) -> cst.Param:
    default = {} if parameter.default is None else {"default": cst.Name("None"), "equal": cst.MaybeSentinel.DEFAULT}
    return cst.ensure_type(parameter.with_changes(annotation=None, **default), cst.Param)


def _helper(rows: Sequence[str]) -> tuple[str, str, tuple[str, ...]]:
    """The name of a helper that a rule puts into a module, what the module of patches does to put it there, and rows that make it."""
    text = "\n".join(rows)
    function = next(statement for statement in ast.parse(text).body if isinstance(statement, ast.FunctionDef))
    if function.name == WARN:
        return function.name, f"(_warn_while_tracing, {function.name!r})", ()
    if function.name.startswith(OPERATOR):
        made = function.decorator_list[0]
        assert isinstance(made, ast.Call)
        told = {keyword.arg: ast.literal_eval(keyword.value) for keyword in made.keywords if keyword.arg in ("mutates_args", "schema")}
        words = f"(_define_operator, {function.name!r}, {told['mutates_args']!r}, {told['schema']!r}, _make_{function.name})"
        return function.name, words, tuple(text.splitlines()[function.lineno - 1 : function.end_lineno])
    call = function.body[0].value if isinstance(function.body[0], ast.Expr) else None
    assert isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)
    owner = tuple(ast.unparse(call.func.value).split("."))
    return function.name, f"(_say_while_tracing, {function.name!r}, {owner!r}, {call.func.attr!r})", ()
