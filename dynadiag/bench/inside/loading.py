"""The user's program in an arm: found and loaded, its `torch.compile` as the arm wants it, its process group one of itself."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dynadiag.bench.inside.reference import eager_stance
from dynadiag.bench.inside.steps import CallUnit, TimedStep, WholeStep
from dynadiag.capture.compiled_calls import replace_compile
from dynadiag.capture.reach import find_state
from dynadiag.capture.script import UserCodeError, is_out_of_memory, one_line
from dynadiag.errors import DynadiagError, UsageError
from dynadiag.torch_compat.dynamo.backend import forget_backends_of

EAGER = "eager"


@dataclass(kw_only=True)
class CompileSwitch:
    """Stands where `torch.compile` stood. `arm` is "eager", or the options that the arm puts over the program's own (none for "default").

    While `arm` is "eager", functions come back as they were, and `modules` are those that the program asked to be compiled. While it is not
    `on`, whoever stood there before decides what the program gets, whatever the arm.
    """

    arm: str
    overrides: Mapping[str, Any]
    original: Callable[..., Any] = field(init=False)
    on: bool = True
    modules: list[Any] = field(default_factory=list)

    def install(self) -> None:
        """Replace `torch.compile`."""
        self.original = replace_compile(self._compile)

    def _compile(self, model: Any, options: Mapping[str, Any]) -> Any:
        if not self.on:
            # An eager arm calls none of it compiled: inductor, which torch would import for it, takes 0.7 s.
            return self.original(model, **({**self._without_backend(options), "backend": "eager"} if self.arm == EAGER else options))
        if self.arm == EAGER:
            self._note(model, options)
            return model
        return self.original(model, **self.merged(options))

    def _note(self, model: Any, options: Mapping[str, Any]) -> None:
        """Keep a module, or the one whose `compile` asks with its bound `_call_impl`."""
        import torch

        module = getattr(model, "__self__", model)
        if isinstance(module, torch.nn.Module) and not options.get("disable") and all(module is not known for known in self.modules):
            self.modules.append(module)

    def merged(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """The program's options under the arm's; another mode or backend takes the place of both, since torch refuses mode and options."""
        if not self.overrides:
            return dict(options)
        return {**self._without_backend(options), **self.overrides}

    @staticmethod
    def _without_backend(options: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in options.items() if name not in ("mode", "backend", "options")}

    def compile(self, function: Any, *, isolated: bool = False) -> Any:
        """`function` compiled as this arm does it; itself for an eager arm.

        With `isolated` its entries in Dynamo's cache count apart where torch can do that (`isolate_recompiles`, not in 2.11); elsewhere
        the entries of several arms share one limit, and only the guard on the backend keeps them apart.
        """
        if self.arm == EAGER:
            return function
        apart = {"isolate_recompiles": True} if isolated and "isolate_recompiles" in inspect.signature(self.original).parameters else {}
        return self.original(function, **self.merged({}), **apart)


_MARK = "_dynadiag_alone"


def stay_alone(torch: Any) -> None:
    """Replace `torch.distributed.init_process_group` by one that refuses a larger group in one line, and meets nobody for a group of one.

    Arms live beside each other: the second would find the port of the first in use, and wait for ranks that nobody starts.
    """
    distributed = torch.distributed
    if not distributed.is_available() or hasattr(distributed.init_process_group, _MARK):
        return
    original = distributed.init_process_group

    @functools.wraps(original)
    def init_process_group(*args: Any, **options: Any) -> Any:
        given = inspect.signature(original).bind(*args, **options).arguments
        size = _size(given)
        if size > 1:
            raise UsageError(
                f"bench compares single processes, and the program starts a process group of {size}: run it alone, as one rank"
            )
        if size == 1 and given.get("store") is None:
            given.update(store=distributed.HashStore(), rank=0, world_size=1)
            given.pop("init_method", None)
        return original(**given)

    setattr(init_process_group, _MARK, True)
    distributed.init_process_group = init_process_group
    distributed.distributed_c10d.init_process_group = init_process_group


def _size(given: Mapping[str, Any]) -> int:
    """The size of the group that is asked for; 0 where it is not said."""
    if (given.get("world_size") or -1) > 0:
        return int(given["world_size"])
    by_environment = given.get("store") is None and given.get("init_method") in (None, "env://") and os.environ.get("RANK", "").isdecimal()
    said = os.environ.get("WORLD_SIZE", "")
    return int(said) if by_environment and said.isdecimal() else 0


def load_step(target: str, switch: CompileSwitch) -> TimedStep:
    """The step that `target` names: `package.module:name` or `path/to/file.py:name`.

    The callable is called once without arguments. If that gives a callable, or a tuple that begins with one, it was a set-up function: a
    lone callable is a whole step, and a callable with arguments is a call (with backward where an output needs it). Anything else means
    that the callable is itself a whole step. What the program did not compile itself is compiled here, for an arm that is not eager.
    """
    function = _find(target)
    # Uncompiled, so that nothing is compiled (or in a cache) before the clock for compiling starts.
    with eager_stance(switch.arm == EAGER):
        made = _first_call(function, target)
    head, arguments = (made[0], made[1:]) if isinstance(made, tuple) and made and callable(made[0]) else (made, ())
    step_function = head if callable(head) else function
    own = switch.arm != EAGER and find_state(step_function, tuple(arguments)).compiled
    compiled = step_function if own or switch.arm == EAGER else switch.compile(step_function)
    kind: type[TimedStep] = CallUnit if arguments else WholeStep
    return kind(original=step_function, function=compiled, arguments=tuple(arguments), compiled_by="program" if own else "bench")


def _find(target: str) -> Callable[..., Any]:
    place, _, name = target.rpartition(":")
    if not place or not name:
        raise UsageError(f"{target!r} does not name a function: expected module:callable or file.py:callable")
    module = _import(place)
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is None:
        raise UsageError(f"{place} has no {name!r}")
    if not callable(found):
        raise UsageError(f"{target} is a {type(found).__name__}, not a callable")
    if inspect.iscoroutinefunction(found) or inspect.isgeneratorfunction(found) or inspect.isasyncgenfunction(found):
        raise UsageError(f"{target} is a coroutine or a generator function: calling it runs nothing, so wrap it in a plain function")
    _refuse_arguments(found, target)
    return found  # type: ignore[no-any-return]


def _import(place: str) -> Any:
    try:
        if place.endswith(".py"):
            return _import_file(Path(place))
        sys.path.insert(0, str(Path.cwd()))
        return importlib.import_module(place)
    except ModuleNotFoundError as error:
        if error.name is not None and (place == error.name or place.startswith(f"{error.name}.")):
            raise UsageError(f"cannot find a module {place!r} to import from {Path.cwd()}") from None
        raise UserCodeError(f"importing {place} raised {one_line(error)}") from error
    except DynadiagError:
        raise
    except Exception as error:  # the border around user code
        raise UserCodeError(f"importing {place} raised {one_line(error)}") from error


def _import_file(path: Path) -> Any:
    if not path.is_file():
        raise UsageError(f"{path} does not exist")
    sys.path.insert(0, str(path.resolve().parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} is not a Python file")
    before = sys.modules.get(path.stem)
    if before is not None and getattr(before, "__file__", None) == spec.origin:  # another arm in the same process
        forget_backends_of(path.stem)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def _refuse_arguments(function: Callable[..., Any], target: str) -> None:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return
    needed = [item.name for item in parameters if item.default is item.empty and item.kind not in (item.VAR_POSITIONAL, item.VAR_KEYWORD)]
    if needed:
        names = ", ".join(needed)
        raise UsageError(f"{target} needs arguments ({names}) that were not recorded: wrap it in a function that returns (step, {names})")


def _first_call(function: Callable[..., Any], target: str) -> Any:
    try:
        return function()
    except DynadiagError:
        raise
    except Exception as error:  # the border around user code
        if is_out_of_memory(error):
            raise
        raise UserCodeError(f"{target} raised {one_line(error)}") from error
