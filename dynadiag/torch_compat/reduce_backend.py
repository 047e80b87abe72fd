"""The backend of a compile: its name and options, or the source of a function of the user's script."""

from __future__ import annotations

import importlib
import inspect
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

_PARTS_LIMIT = 20
FUNCTION = "dynadiag_function"
"""The key of plain data that stands for a function."""


def describe_backend(compiler_fn: Any) -> tuple[dict[str, Any], str | None]:
    """Plain data for a `Setting` (`backend`, `options`, `mode`, `dynamic`, `backend_source`), and why it is not all of it."""
    described, function = _named(compiler_fn)
    if function is None:
        return {**described, "backend_source": None}, None
    source, trouble = _source_of(function)
    return {**described, "backend_source": source}, trouble


def name_backend(compiler_fn: Any) -> dict[str, Any]:
    """Plain data without a source; `registered` says whether any process that has torch finds the backend by this name."""
    described, function = _named(compiler_fn)
    return {**described, "registered": function is None}


@dataclass(frozen=True)
class OptionFunction:
    """A function that is the value of an option: one of torch, named by `module` and `name`, or one of the script, with its `source`.

    Its `repr` is how a script spells it.
    """

    name: str
    module: str | None = None
    source: str | None = None
    function: Any = field(default=None, compare=False)

    def __repr__(self) -> str:
        return self.name if self.module is None else f"{self.module}.{self.name}"


def describe_option(value: Any) -> Any:
    """Plain data for the value of an option, None where there is none: numbers, texts, lists of them, functions (`OptionFunction`)."""
    if isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        items = [describe_option(item) for item in value]
        return None if any(item is None or isinstance(item, dict) for item in items) else items
    if not isinstance(value, FunctionType | BuiltinFunctionType | type):
        return None
    module, name = str(getattr(value, "__module__", "")), str(value.__qualname__)
    if module.partition(".")[0] == "torch" and _found(module, name) is value:
        return {FUNCTION: name, "module": module}
    source, _ = _source_of(value)
    return None if source is None else {FUNCTION: value.__name__, "source": source}


def option_value(described: Any) -> Any:
    """The value behind `describe_option`. Raises ValueError for a function that this torch does not have.

    A source is run: it is that of the script which ran a moment ago.
    """
    if not isinstance(described, dict):
        return described
    name, module, source = described.get(FUNCTION), described.get("module"), described.get("source")
    if isinstance(source, str) and isinstance(name, str):
        names: dict[str, Any] = {"__name__": "option_of_the_script"}
        exec(compile(source, "<option of the script>", "exec"), names)
        return OptionFunction(name, source=source, function=names[name])
    if not isinstance(name, str) or not isinstance(module, str) or module.partition(".")[0] != "torch":
        raise ValueError(f"{described!r} names no function of torch")
    importlib.import_module(module)
    found = _found(module, name)
    if found is None:
        raise ValueError(f"this torch has no {module}.{name}")
    return OptionFunction(name, module=module, function=found)


def _found(module: str, name: str) -> Any:
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def _named(compiler_fn: Any) -> tuple[dict[str, Any], Any]:
    """What is known of the backend, and its function where torch does not know it by name.

    Looks through torch's wrappers (`WrapBackendDebug`, `_TorchCompileInductorWrapper`, `_TorchCompileWrapper`; 2.11 to 2.15).
    """
    found = _unwrapped(compiler_fn)
    dynamic = getattr(found, "dynamic", None)
    described: dict[str, Any] = {"dynamic": dynamic if isinstance(dynamic, bool) else None, "mode": None}
    if getattr(found, "compiler_name", None) == "inductor" and hasattr(found, "config"):
        return {**described, "backend": "inductor", "options": _plain(found.config)}, None
    kwargs = getattr(found, "kwargs", {})
    described |= {"options": _plain(kwargs.get("options") or {}), "mode": kwargs.get("mode")}
    function = _unwrapped(getattr(found, "compiler_fn", found))
    name = _registered_name(function)
    if name is not None:
        return {**described, "backend": name}, None
    return {**described, "backend": getattr(function, "__name__", "backend")}, function


def _unwrapped(function: Any) -> Any:
    for _ in range(_PARTS_LIMIT):
        inner = vars(function).get("_torchdynamo_orig_backend") if hasattr(function, "__dict__") else None
        if inner is None:
            return function
        function = inner
    return function


def _plain(options: Any) -> dict[str, Any]:
    return {str(name): value for name, value in dict(options).items() if isinstance(value, bool | int | float | str | None)}


def _registered_name(function: Any) -> str | None:
    """The name under which any process that imported torch alone finds the backend."""
    registry = sys.modules.get("torch._dynamo.backends.registry")
    known = getattr(registry, "_COMPILER_FNS", {})
    for name, registered in known.items():
        if registered is not None and _unwrapped(registered) is function and str(getattr(function, "__module__", "")).startswith("torch."):
            return str(name)
    return None


def _source_of(function: Any) -> tuple[str | None, str | None]:
    """The source of a function with all that it names in its module; or why that cannot be had."""
    if not isinstance(function, FunctionType):
        return None, f"the backend is {type(function).__name__}, no function with a source"
    if not function.__name__.isidentifier():
        return None, "the backend is a lambda, which has no name"
    parts: dict[str, str] = {}
    try:
        _collect(function, parts)
    except (OSError, TypeError, ValueError) as error:
        return None, f"the backend {function.__name__} cannot be copied into one file: {error}"
    return "\n\n".join(parts.values()), None


def _collect(function: FunctionType, parts: dict[str, str]) -> None:
    if function.__closure__:
        raise ValueError(f"{function.__name__} uses variables of a function around it")
    for name in _names(function.__code__):
        if name not in function.__globals__ or f"{name} =" in parts or name in parts:
            continue
        _collect_value(name, function.__globals__[name], function, parts)
        if len(parts) > _PARTS_LIMIT:
            raise ValueError("it uses too much of its module")
    parts[function.__name__] = textwrap.dedent(inspect.getsource(function))


def _collect_value(name: str, value: Any, function: FunctionType, parts: dict[str, str]) -> None:
    if isinstance(value, ModuleType):
        parts[name] = f"import {value.__name__}" if value.__name__ == name else f"import {value.__name__} as {name}"
    elif isinstance(value, bool | int | float | str | None):
        parts[name] = f"{name} = {value!r}"
    elif getattr(value, "__module__", None) != function.__module__ and hasattr(value, "__qualname__"):
        parts[name] = f"from {value.__module__} import {value.__qualname__.split('.')[0]}" + (
            f" as {name}" if value.__name__ != name else ""
        )
    elif isinstance(value, FunctionType):
        parts[name] = ""
        _collect(value, parts)
        parts[name] = parts.pop(value.__name__)
    elif isinstance(value, type):
        parts[name] = textwrap.dedent(inspect.getsource(value))
    else:
        raise ValueError(f"it uses {name}, a {type(value).__name__} of its module")


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
