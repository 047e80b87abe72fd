"""The backend of a compile: its name and options, or the source of a function of the user's script."""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass, field
from types import BuiltinFunctionType, FunctionType
from typing import Any

from dynadiag.dotted_names import lies_in
from dynadiag.torch_compat.dynamo.backend_source import names_of, source_of

_PARTS_LIMIT = 20
FUNCTION = "dynadiag_function"
"""The key of plain data that stands for a function."""


def describe_backend(compiler_fn: Any) -> tuple[dict[str, Any], str | None]:
    """Plain data for a `Setting` (`backend`, `options`, `mode`, `dynamic`, `backend_source`), and why it is not all of it."""
    described, function = _named(compiler_fn)
    if function is None:
        return {**described, "backend_source": None}, None
    name, source, trouble = _source_of(function)
    return {**described, "backend": name, "backend_source": source}, trouble


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
    if isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        items = [describe_option(item) for item in value]
        return None if any(item is None or isinstance(item, dict) for item in items) else items
    if not isinstance(value, (FunctionType, BuiltinFunctionType, type)):
        return None
    module, name = str(getattr(value, "__module__", "")), str(value.__qualname__)
    if module.partition(".")[0] == "torch" and _found(module, name) is value:
        return {FUNCTION: name, "module": module}
    name, source, _ = _source_of(value)
    return None if source is None else {FUNCTION: name, "source": source}


def option_value(described: Any) -> Any:
    """The value behind `describe_option`. Raises ValueError for a function that this torch does not have.

    A source is run: it is that of the script which ran a moment ago.
    """
    if not isinstance(described, dict):
        return described
    name, module, source = described.get(FUNCTION), described.get("module"), described.get("source")
    if isinstance(source, str) and isinstance(name, str):
        return OptionFunction(name, source=source, function=names_of(source, "option_of_the_script")[name])
    if not isinstance(name, str) or not isinstance(module, str) or module.partition(".")[0] != "torch":
        raise ValueError(f"{described!r} does not name a torch function")
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
        return {**described, "backend": "inductor", "options": _recordable(found.config)}, None
    kwargs = getattr(found, "kwargs", {})
    described |= {"options": _recordable(kwargs.get("options") or {}), "mode": kwargs.get("mode")}
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


def _recordable(options: Any) -> dict[str, Any]:
    return {str(name): value for name, value in dict(options).items() if isinstance(value, (bool, int, float, str, type(None)))}


def _registered_name(function: Any) -> str | None:
    """The name under which any process that imported torch alone finds the backend."""
    registry = sys.modules.get("torch._dynamo.backends.registry")
    known = getattr(registry, "_COMPILER_FNS", {})
    for name, registered in known.items():
        if registered is not None and _unwrapped(registered) is function and lies_in(str(getattr(function, "__module__", "")), "torch"):
            return str(name)
    return None


def forget_backends_of(module: str) -> None:
    """Take out the back ends that a module registered, so that it may run again: a name that is there is an error (torch 2.6 to 2.15)."""
    registry = sys.modules.get("torch._dynamo.backends.registry")
    known = getattr(registry, "_COMPILER_FNS", {})
    for name in [name for name, function in known.items() if getattr(function, "__module__", None) == module]:
        del known[name]
        getattr(registry, "_BACKENDS", {}).pop(name, None)


def _source_of(function: Any) -> tuple[str, str | None, str | None]:
    """The name of a function with its source and all that this names in its module; or why that cannot be had."""
    name = str(getattr(function, "__name__", type(function).__name__))
    try:
        return (*source_of(function), None)
    except (OSError, TypeError, ValueError, SyntaxError) as error:
        return name, None, f"the backend {name} cannot be copied into one file: {error}"
