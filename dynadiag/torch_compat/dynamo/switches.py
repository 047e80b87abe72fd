"""Calls of torch's public switches: `torch.compile`, stances, `disable`, `reset`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from types import FunctionType, MethodType, ModuleType
from typing import Any

from dynadiag.torch_compat.trace import stacks
from dynadiag.torch_compat.trace.hooks import Hooks

_ENVIRONMENT_SWITCHES = ("TORCHDYNAMO_DISABLE", "TORCH_COMPILE_DISABLE")


def watch_compile(torch: ModuleType, hooks: Hooks) -> None:
    """Record each call of `torch.compile` that names what it compiles (the decorator form calls it again with the function)."""

    def before(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        target = args[0] if args else kwargs.get("model")
        if target is not None:
            hooks.sink.artifact("dynadiag_compile_call", _describe_call(target, kwargs))
            _note_environment_switches(hooks)

    hooks.install("torch.compile", lambda: hooks.watch(torch, "compile", before=before, file=torch.__file__))


def _describe_call(target: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
    options = kwargs.get("options")
    return {
        "target": target_name(target),
        "definition": _definition(target),
        "backend": _backend(kwargs.get("backend")),
        "mode": kwargs.get("mode"),
        "fullgraph": bool(kwargs.get("fullgraph", False)),
        "dynamic": kwargs.get("dynamic"),
        "disable": bool(kwargs.get("disable", False)),
        "options": {str(name): _recordable(value) for name, value in options.items()} if isinstance(options, dict) else {},
        "stack": stacks.calling_stack(),
    }


def target_name(target: Any) -> str:
    """A name for what is compiled: a qualified function name, or the class of a module; never its repr, which may be long or slow."""
    owner = getattr(target, "__self__", None)
    name = getattr(target, "__qualname__", None)
    if owner is not None and isinstance(name, str):
        return f"{type(owner).__qualname__}.{getattr(target, '__name__', name)}"
    return name if isinstance(name, str) else type(target).__qualname__


def _definition(target: Any) -> dict[str, Any] | None:
    """Where the code of a function or method begins; None for anything else, which may answer to any attribute."""
    code = target.__code__ if isinstance(target, (FunctionType, MethodType)) and hasattr(target, "__code__") else None
    return None if code is None else {"file": code.co_filename, "line": code.co_firstlineno}


def _backend(backend: Any) -> str | None:
    return backend if backend is None or isinstance(backend, str) else target_name(backend)


def _recordable(value: Any) -> Any:
    return value if isinstance(value, (bool, int, float, str, type(None))) else repr(value)[:200]


def _note_environment_switches(hooks: Hooks) -> None:
    """Compilation switched off from outside: the environment (`eval_frame._optimize`) or `torch._dynamo.config.disable`."""
    found = [f"{name}=1" for name in _ENVIRONMENT_SWITCHES if os.environ.get(name) == "1"]
    configuration = sys.modules.get("torch._dynamo.config")
    if not found and getattr(configuration, "disable", False):
        found = ["torch._dynamo.config.disable = True"]
    for switch in found:
        hooks.sink.artifact("dynadiag_problem", {"kind": "env_disabled", "text": switch, "stack": stacks.calling_stack()})


def watch_stance(eval_frame: ModuleType, hooks: Hooks) -> None:
    """Record each other stance than the default, once a place (`torch.compiler.set_stance` goes through `eval_frame._set_stance`)."""
    seen: set[tuple[str, str, int]] = set()

    def after(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        stance = args[0] if args else kwargs.get("stance")
        name = getattr(stance, "stance", None)
        if name in (None, "default") and getattr(stance, "backend", None) is None:
            return
        stack = [frame for frame in stacks.calling_stack() if not frame["file"].startswith(stacks.torch_folder())]
        key = (str(name), stack[-1]["file"] if stack else "", stack[-1]["line"] or 0 if stack else 0)
        if key not in seen:
            seen.add(key)
            backend = getattr(stance, "backend", None)
            text = f"stance {name}" if backend is None else f"stance {name}, backend {_backend(backend)}"
            hooks.sink.artifact("dynadiag_problem", {"kind": "stance", "text": text, "stack": stack})

    hooks.install("set_stance", lambda: hooks.watch(eval_frame, "_set_stance", after=after))


def watch_disable(decorators: ModuleType, hooks: Hooks) -> None:
    """Record each function that code outside torch switches compilation off for (`torch.compiler.disable`)."""

    def after(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        target = args[0] if args else kwargs.get("fn")
        stack = _stack_of_outside_caller()
        if target is None or not stack:
            return
        reason = kwargs.get("reason")
        text = f"{target_name(target)} is disabled" + (f": {reason}" if isinstance(reason, str) else "")
        hooks.sink.artifact("dynadiag_problem", {"kind": "disabled", "text": text, "stack": stack})

    hooks.install("disable", lambda: hooks.watch(decorators, "disable", after=after))


def _stack_of_outside_caller() -> list[dict[str, Any]]:
    """The stack when `disable` was called from outside torch, directly or through `torch/compiler/__init__.py`; else empty."""
    torch = stacks.torch_folder()
    compiler = os.path.join(torch, "compiler", "__init__.py")  # noqa: PTH118
    frame = sys._getframe(1)
    own = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120
    while frame is not None and (
        frame.f_code.co_filename == compiler or frame.f_code.co_filename.startswith(own) or frame.f_code.co_name == "dynadiag_watch"
    ):
        frame = frame.f_back  # type: ignore[assignment]
    if frame is None or frame.f_code.co_filename.startswith(torch):
        return []
    return [place for place in stacks.calling_stack() if place["file"] != compiler]


def watch_reset(dynamo: ModuleType, hooks: Hooks, on_reset: Callable[[], None]) -> None:
    """Call `on_reset` after each `torch._dynamo.reset()`, from where on compile ids repeat."""
    hooks.install("reset", lambda: hooks.watch(dynamo, "reset", after=lambda args, kwargs, result: on_reset()))


def watch_code_cache(package: ModuleType, hooks: Hooks) -> None:
    """Record when code comes from torch's cache on disk (`config.caching_precompile`): it is not traced, its breaks are not told again."""

    def after(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        target = args[0] if args else kwargs.get("fn")
        if result is None or target is None:
            return
        name = target_name(target)
        text = f"{name} came from torch's code cache (caching_precompile): its graph breaks and graphs were reported when it was traced"
        hooks.sink.artifact("dynadiag_problem", {"kind": "cached_code", "text": text, "stack": stacks.calling_stack()})

    hooks.install("code_cache", lambda: hooks.watch(package.DynamoCache, "load", after=after, file=package.__file__))
