"""The module that puts rewritten copies in the place of functions of installed packages, when these are as they were; no package is edited.

A copy gets the code of the original (`__code__`), so globals, defaults, closures, decorators and identity stay those of the original.
"""

from __future__ import annotations

import ast
import copy
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dynadiag.fix.change import Candidate
from dynadiag.fix.edits import EditError
from dynadiag.fix.rules.messages import WARN
from dynadiag.fix.rules.operators import PREFIX as OPERATOR

NAME = "dynadiag_patches"
IMPORT = f"import {NAME}  # noqa: F401 (first: it replaces functions of installed packages by proven copies)"
_Function = ast.FunctionDef | ast.AsyncFunctionDef

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
    """A function to replace: where it is, its lines in the original, and the rows of its copy."""

    module: str
    path: tuple[str, ...]
    count: int
    made_for: str
    rows: tuple[str, ...]


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
    for number, one in enumerate(copies, start=1):
        yield from ("", f"def _copy_{number}():", *_nested(one, 1), "")
        waiting.setdefault(one.module, []).append(f"(_replace, {one.path!r}, {one.count}, {one.made_for!r}, _copy_{number})")
    yield from ("", "_WAITING = {")
    for module, entries in waiting.items():
        yield from (f"    {module!r}: [", *(f"        {entry}," for entry in entries), "    ],")
    yield "}"
    yield from _TAIL.splitlines()


def _nested(one: _Copy, depth: int) -> Iterator[str]:
    """The copy inside classes of the same names: `super()` and names that begin with two underscores mean what they did, and a name that
    is its own or that of its class is a global one.
    """
    yield f"    global {one.path[0]}"
    for name in one.path[:-1]:
        yield f"{'    ' * depth}class {name}:"
        depth += 1
    yield from (f"{'    ' * depth}{row}" if row else "" for row in one.rows)
    yield from ("", f"    return {'.'.join(one.path)}")


def _path(tree: ast.Module, row: int) -> tuple[str, ...]:
    """The classes and the outermost function around a row."""
    found: list[str] = []
    block: list[ast.stmt] = tree.body
    while True:
        kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        node = next((one for one in block if isinstance(one, kinds) and _first(one) <= row <= (one.end_lineno or 0)), None)
        if node is None:
            raise EditError("the line is in no function of the module or of its classes")
        if sum(getattr(one, "name", None) == node.name for one in block) != 1:
            raise EditError(f"`{node.name}` is defined more than once")
        found.append(node.name)
        if not isinstance(node, ast.ClassDef):
            return tuple(found)
        block = node.body


def _first(node: _Function | ast.ClassDef) -> int:
    return min([node.lineno, *(one.lineno for one in node.decorator_list)])


def _at(tree: ast.Module, path: Sequence[str]) -> _Function:
    node: Any = tree
    for name in path:
        node = next(one for one in node.body if getattr(one, "name", None) == name)
    assert isinstance(node, _Function)
    return node


def _copy(module: str, path: tuple[str, ...], original: str, new: str) -> _Copy:
    was, now = _at(ast.parse(original), path), _at(ast.parse(new), path)
    first, last = _first(was), was.end_lineno or was.lineno
    text = "".join(original.splitlines(keepends=True)[first - 1 : last])
    made_for = hashlib.sha256(text.encode()).hexdigest()
    return _Copy(module=module, path=path, count=last - first + 1, made_for=made_for, rows=tuple(_function_rows(now, new)))


def _function_rows(function: _Function, text: str) -> list[str]:
    """The function without decorators, defaults, annotations and docstring: what `__code__` does not hold. Its rows are as written."""
    body = function.body[1:] if ast.get_docstring(function, clean=False) is not None and len(function.body) > 1 else function.body
    if body[0].lineno == function.lineno:
        raise EditError(f"`{function.name}` stands on one line")
    margin = body[0].col_offset
    begin = (function.body[0].end_lineno or 0) + 1 if body is not function.body else body[0].lineno
    rows = text.splitlines()[begin - 1 : function.end_lineno]
    inside = [row[margin:] if not row[:margin].strip() else row.lstrip() for row in rows]
    head = copy.deepcopy(function)
    head.decorator_list, head.returns, head.body = [], None, [ast.Pass()]
    arguments = head.args
    for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg):
        if one is not None:
            one.annotation = None
    arguments.defaults = [ast.Constant(None) for _ in arguments.defaults]
    arguments.kw_defaults = [None if one is None else ast.Constant(None) for one in arguments.kw_defaults]
    made = [ast.unparse(head).splitlines()[0], *(f"    {row}" if row else "" for row in inside)]
    again = ast.parse("\n".join(made)).body[0]
    if not isinstance(again, _Function) or [_dumped(one) for one in again.body] != [_dumped(one) for one in body]:
        raise EditError(f"`{function.name}` cannot be copied (a text over several lines)")
    return made


def _dumped(node: ast.stmt) -> str:
    """The statement but for the docstrings of functions in it, whose indentation is another one."""
    node = copy.deepcopy(node)
    for one in ast.walk(node):
        if isinstance(one, _Function) and ast.get_docstring(one, clean=False) is not None:
            one.body = one.body[1:]
    return ast.dump(node)


def _helper(rows: Sequence[str]) -> tuple[str, str, tuple[str, ...]]:
    """The name of a helper that a rule puts into a module, what the module of patches does to put it there, and rows that make it."""
    text = "\n".join(rows)
    function = next(one for one in ast.parse(text).body if isinstance(one, ast.FunctionDef))
    if function.name == WARN:
        return function.name, f"(_warn_while_tracing, {function.name!r})", ()
    if function.name.startswith(OPERATOR):
        made = function.decorator_list[0]
        assert isinstance(made, ast.Call)
        told = {one.arg: ast.literal_eval(one.value) for one in made.keywords if one.arg in ("mutates_args", "schema")}
        words = f"(_define_operator, {function.name!r}, {told['mutates_args']!r}, {told['schema']!r}, _make_{function.name})"
        return function.name, words, tuple(text.splitlines()[function.lineno - 1 : function.end_lineno])
    call = function.body[0].value if isinstance(function.body[0], ast.Expr) else None
    assert isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)
    owner = tuple(ast.unparse(call.func.value).split("."))
    return function.name, f"(_say_while_tracing, {function.name!r}, {owner!r}, {call.func.attr!r})", ()


def with_import(text: str) -> str:
    """The script's text with the import of the module before all others. Raises EditError where it has no line of its own."""
    tree = ast.parse(text)
    place = 0
    for at, one in enumerate(tree.body):
        docstring = at == 0 and isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant)
        future = isinstance(one, ast.ImportFrom) and one.module == "__future__"
        if not docstring and not future:
            break
        place = one.end_lineno or one.lineno
    lines = text.splitlines(keepends=True)
    if place == 0:  # behind a first comment: `#!`, a coding line, what the file is
        place = next((at for at, row in enumerate(lines) if not row.startswith("#")), len(lines))
    ending = "\r\n" if lines and lines[0].endswith("\r\n") else "\n"
    if any(one.lineno <= place < (one.end_lineno or one.lineno) for one in tree.body):
        raise EditError("the first lines of the script share a line with other statements")
    changed = "".join([*lines[:place], f"{IMPORT}{ending}", *lines[place:]])
    if ast.dump(ast.Module([one for one in ast.parse(changed).body if ast.unparse(one) != f"import {NAME}"], [])) != ast.dump(tree):
        raise EditError("the import of the patch module has no line of its own at the top of the script")
    return changed
