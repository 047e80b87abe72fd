"""The source of a backend of the user's script: every statement of its module that it needs, so that it runs in one file of its own."""

from __future__ import annotations

import argparse
import ast
import dis
import functools
import inspect
import linecache
import os
import site
import sys
import sysconfig
import textwrap
from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

_PARTS_LIMIT = 60
_REGISTERS = ("register_backend", "register_debug_backend", "register_experimental_backend")
_GLOBAL_READS = ("LOAD_GLOBAL", "LOAD_NAME")
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_IMPORTS = (ast.Import, ast.ImportFrom)
_PLAIN = (bool, int, float, str, type(None))
MADE = "backend_of_the_script"
"""The name of a backend that has none, because it was made where it is used."""


def source_of(backend: Any) -> tuple[str, str]:
    """The name of a backend and the statements that make it. Raises ValueError, OSError or TypeError where it cannot be copied."""
    found = _named_globally(backend)
    if found is not None:
        name, module = found
        return name, _Copy().of(name, module)
    kwargs = getattr(backend, "kwargs", None) if type(backend).__name__ == "AotAutograd" else None
    if isinstance(kwargs, dict):
        return MADE, _aot_autograd(kwargs)
    own = str(getattr(backend, "__name__", ""))
    installed = _import(own, backend) if own.isidentifier() else None
    if installed is not None:
        return own, installed
    if isinstance(backend, FunctionType) and backend.__name__.isidentifier() and not backend.__closure__:
        return backend.__name__, _Copy().of_inner(backend)
    if getattr(backend, "__closure__", None):
        raise ValueError("it uses variables of a function around it")
    raise ValueError(f"it is not a top-level name of its module ({type(backend).__name__})")


def names_of(source: str, module: str) -> dict[str, Any]:
    """What a source makes, run as a module of this name (`dataclasses` looks annotations up in it)."""
    made, file = ModuleType(module), f"<{module}>"
    sys.modules[module] = made
    # Triton asks `inspect` for the text of its functions (triton/runtime/jit.py, 3.6).
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    exec(compile(source, file, "exec", dont_inherit=True), vars(made))
    return vars(made)


def _named_globally(value: Any) -> tuple[str, ModuleType] | None:
    """The name and the module under which a script finds a value; by preference where it was defined."""
    own = sys.modules.get(str(getattr(value, "__module__", "")))
    for module in filter(None, (own, sys.modules.get("__main__"), *_modules_of_the_user())):
        names = [name for name, held in list(vars(module).items()) if held is value and name.isidentifier() and not name.startswith("__")]
        if names and _is_of_the_user(module):
            preferred = getattr(value, "__name__", None)
            return (preferred if preferred in names else names[0]), module
    return None


def _aot_autograd(kwargs: dict[str, Any]) -> str:
    """`aot_autograd(fw_compiler=...)` spelled anew (`AotAutograd.kwargs`, torch/_dynamo/backends/common.py, 2.11 to 2.15)."""
    copy, arguments, imports = _Copy(), [], {"from torch._dynamo.backends.common import aot_autograd"}
    for name, value in kwargs.items():
        found = _named_globally(value)
        if isinstance(value, _PLAIN):
            arguments.append(f"{name}={value!r}")
        elif found is not None:
            copy.of(*found)
            arguments.append(f"{name}={found[0]}")
        elif isinstance(value, FunctionType) and "." not in value.__qualname__ and not _is_of_the_user(sys.modules[value.__module__]):
            imports.add(f"from {value.__module__} import {value.__name__}")
            arguments.append(f"{name}={value.__name__}")
        else:
            raise ValueError(f"aot_autograd got {name}, a {type(value).__name__} without a name of its own")
    return "\n".join([*sorted(imports), copy.join_parts(), f"{MADE} = aot_autograd({', '.join(arguments)})"])


def _modules_of_the_user() -> Iterator[ModuleType]:
    yield from (module for module in list(sys.modules.values()) if isinstance(module, ModuleType) and _is_of_the_user(module))


def _is_of_the_user(module: ModuleType) -> bool:
    """Whether its file is neither of the standard library nor installed: such a module is not there where the reproducer runs."""
    file = getattr(module, "__file__", None)
    if not isinstance(file, str) or file.startswith("<"):
        return False
    real = os.path.realpath(file)
    return f"{os.sep}dynadiag{os.sep}" not in real and not real.startswith(_installed_folders())


@functools.cache
def _installed_folders() -> tuple[str, ...]:
    """Where the standard library and installed packages are, each with a separator at its end."""
    paths = sysconfig.get_paths()
    homes = {paths["stdlib"], paths["platstdlib"], paths["purelib"], paths["platlib"], *site.getsitepackages(), site.getusersitepackages()}
    return tuple(os.path.realpath(home) + os.sep for home in homes)


class _Copy:
    """Statements of modules of the user, each once, in the order of their files."""

    def __init__(self) -> None:
        self._parts: dict[tuple[int, int], str] = {}
        self._imports: dict[str, str] = {}
        self._values: dict[str, Any] = {}
        self._modules: dict[str, _Module] = {}

    def of(self, name: str, module: ModuleType) -> str:
        """The text with everything that this name of the module needs."""
        self._need(name, self._module(module))
        return self.join_parts()

    def of_inner(self, function: FunctionType) -> str:
        """The text of a function inside of another one, which needs nothing of that."""
        text = textwrap.dedent(inspect.getsource(function))
        module = self._module(sys.modules[function.__module__])
        for name in sorted(module.reads(text)):
            self._need(name, module)
        return f"{self.join_parts()}\n\n\n{text}".strip()

    def join_parts(self) -> str:
        """Imports first, then the modules, those that others need first."""
        return "\n".join([*self._imports.values(), "", "\n\n\n".join(self._parts[key] for key in sorted(self._parts))]).strip()

    def _module(self, module: ModuleType) -> _Module:
        return self._modules.setdefault(module.__name__, _Module(module, -len(self._modules)))

    def _need(self, name: str, module: _Module) -> None:
        value = vars(module.module).get(name)
        if self._values.setdefault(name, value) is not value:
            raise ValueError(f"{name} means one thing in {module.name} and another elsewhere")
        if name in module.done:
            return
        module.done.add(name)
        statements = module.binding(name)
        spelled = _spelled(name, value)
        if spelled is not None and not any(isinstance(item, _DEFINITIONS) for item in statements):
            if isinstance(value, argparse.Namespace):
                self._imports["argparse"] = "import argparse"
            self._parts[module.order, statements[0].lineno if statements else 0] = spelled
            return
        imported = _import(name, value)
        if imported is not None and all(_imports(element) for element in statements):
            self._imports[name] = imported
            return
        foreign = _named_globally(value) if all(_imports(entry) for entry in statements) else None
        if foreign is not None and foreign[1].__name__ != module.name:
            self._need(foreign[0], self._module(foreign[1]))
            if foreign[0] != name:
                raise ValueError(f"it renames {foreign[0]} of {foreign[1].__name__} to {name}")
            return
        if not statements:
            raise ValueError(f"it uses {name}, a {type(value).__name__} that no top-level statement creates")
        for statement in statements:
            self._add(statement, module)
        for child in module.feeding(name):
            self._add(child, module)

    def _add(self, statement: ast.stmt, module: _Module) -> None:
        key = module.order, statement.lineno
        if key in self._parts:
            return
        if len(self._parts) > _PARTS_LIMIT:
            raise ValueError("it uses too much of its module")
        self._parts[key] = module.text_of(statement)
        for bound in _bound(statement):
            module.done.add(bound)
        for name in sorted(module.needs(statement)):
            self._need(name, module)


class _Module:
    """One module of the user as statements of its top level."""

    def __init__(self, module: ModuleType, order: int) -> None:
        self.module, self.name, self.order = module, module.__name__, order
        self.done: set[str] = set()
        file = inspect.getsourcefile(module) or str(module.__file__)
        linecache.checkcache(file)
        self._lines = linecache.getlines(file)
        if not self._lines:
            raise OSError(f"the text of {self.name} cannot be read")
        self._body = [child for statement in ast.parse("".join(self._lines)).body for child in _opened(statement)]
        self._late = any(isinstance(item, ast.ImportFrom) and item.module == "__future__" for item in self._body)

    def binding(self, name: str) -> list[ast.stmt]:
        """The last definition of a name, or all assignments to it."""
        found = [statement for statement in self._body if name in _bound(statement)]
        return found[-1:] if found and isinstance(found[-1], _DEFINITIONS) else found

    def feeding(self, name: str) -> list[ast.stmt]:
        """What fills an object that an assignment made: `PASSES.append(f)`, `TABLE[op] = f`, `@PASSES.add`, `@register`, which appends."""
        if not any(isinstance(statement, (ast.Assign, ast.AnnAssign)) for statement in self.binding(name)):
            return []
        return [child for child in self._body if self._feeds(child, name)]

    def _feeds(self, statement: ast.stmt, name: str) -> bool:
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call) and isinstance(statement.value.func, ast.Attribute):
            return _root(statement.value.func) == name
        if isinstance(statement, ast.AugAssign):
            return _root(statement.target) == name
        if isinstance(statement, ast.Assign):
            return any(isinstance(target, (ast.Subscript, ast.Attribute)) and _root(target) == name for target in statement.targets)
        if isinstance(statement, _DEFINITIONS):
            return any(self._decorates(_root(decorator), name) for decorator in statement.decorator_list)
        return False

    def _decorates(self, decorator: str | None, name: str) -> bool:
        if decorator is None or decorator == name:
            return decorator == name
        return any(isinstance(statement, ast.FunctionDef) and name in self.needs(statement) for statement in self.binding(decorator))

    def needs(self, statement: ast.stmt) -> set[str]:
        """The names of the module that a statement reads: as the compiler sees it, so attributes, parameters and local names are none."""
        return self.reads(self.text_of(statement))

    def reads(self, text: str) -> set[str]:
        """The same of a text."""
        code = compile(text, "<backend>", "exec", dont_inherit=True)
        return {name for name in _reads(code) if name in vars(self.module) and not name.startswith("__")}

    def text_of(self, statement: ast.stmt) -> str:
        """Its text without decorators that only register a backend; where annotations are never evaluated, without them."""
        if isinstance(statement, _DEFINITIONS) and not self._late:
            kept = [decorator for decorator in statement.decorator_list if not _registers(decorator)]
            lines = self._lines[statement.lineno - 1 : statement.end_lineno]
            spare = len(lines[0]) - len(lines[0].lstrip())
            body = "".join(line[spare:] if not line[:spare].strip() else line for line in lines).rstrip()
            return "\n".join([*(f"@{ast.unparse(expression)}" for expression in kept), body])
        if isinstance(statement, _DEFINITIONS):
            statement.decorator_list = [item for item in statement.decorator_list if not _registers(item)]
            return ast.unparse(_Plain().visit(statement))
        return ast.get_source_segment("".join(self._lines), statement) or ast.unparse(statement)


class _Plain(ast.NodeTransformer):
    """Annotations as `from __future__ import annotations` leaves them: texts in classes, nothing elsewhere."""

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node.annotation = ast.Constant(ast.unparse(node.annotation))
        return self.generic_visit(node)


def _opened(statement: ast.stmt) -> Iterator[ast.stmt]:
    """What stands behind `if __name__ == "__main__":` belongs to the top level too."""
    if isinstance(statement, ast.If) and "__name__" in ast.unparse(statement.test) and not statement.orelse:
        yield from statement.body
    else:
        yield statement


def _bound(statement: ast.stmt) -> set[str]:
    if isinstance(statement, _DEFINITIONS):
        return {statement.name}
    if isinstance(statement, _IMPORTS):
        return {name.asname or name.name.partition(".")[0] for name in statement.names}
    names = (node for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    inner = (text for node in ast.walk(statement) if isinstance(node, _IMPORTS) for text in _bound(node))
    return {node.id for node in names} | set(inner)


def _imports(statement: ast.stmt) -> bool:
    return isinstance(statement, (*_IMPORTS, ast.Try))


def _registers(node: ast.expr) -> bool:
    inner = node.func if isinstance(node, ast.Call) else node
    return getattr(inner, "id", getattr(inner, "attr", None)) in _REGISTERS


def _root(node: ast.expr) -> str | None:
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Call)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else None


def _reads(code: CodeType) -> Iterator[str]:
    yield from (str(instruction.argval) for instruction in dis.get_instructions(code) if instruction.opname in _GLOBAL_READS)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _reads(constant)


def _spelled(name: str, value: Any) -> str | None:
    """An assignment of a plain value as it was when the graph was captured: what a script reads from its arguments or a file is no more."""
    if isinstance(value, argparse.Namespace) and all(_is_plain(var) for var in vars(value).values()):
        return f"{name} = argparse.Namespace({', '.join(f'{key}={item!r}' for key, item in vars(value).items() if key.isidentifier())})"
    return f"{name} = {value!r}" if _is_plain(value) else None


def _is_plain(value: Any) -> bool:
    if type(value) in (list, tuple, set):
        return bool(value) and len(value) <= 100 and all(_is_plain(item) for item in value)
    if type(value) is dict:
        return bool(value) and len(value) <= 100 and all(_is_plain(element) for pair in value.items() for element in pair)
    return type(value) in _PLAIN and value == value


def _import(name: str, value: Any) -> str | None:
    """How an installed module, or what stands in one, is imported."""
    if isinstance(value, ModuleType):
        if _is_of_the_user(value):
            raise ValueError(f"it uses the module {value.__name__}, which is not an installed one")
        return (
            f"import {value.__name__}"
            if name == value.__name__.partition(".")[0] == value.__name__
            else f"import {value.__name__} as {name}"
        )
    home, known = getattr(value, "__module__", None), getattr(value, "__qualname__", None) or getattr(value, "__name__", None) or name
    module = sys.modules.get(home) if isinstance(home, str) else None
    if module is None or module.__name__ == "__main__" or _is_of_the_user(module):
        return None
    for known_as in (str(known), name):
        if known_as.isidentifier() and vars(module).get(known_as) is value:
            return f"from {home} import {known_as}" + (f" as {name}" if known_as != name else "")
    return None
