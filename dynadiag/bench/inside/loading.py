"""From `module:callable` to the step that is timed."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dynadiag.bench.inside.patching import EAGER, CompileSwitch
from dynadiag.bench.inside.reference import eager_stance
from dynadiag.bench.inside.steps import CallUnit, Step, WholeStep
from dynadiag.capture.reach import find_state
from dynadiag.capture.script import UserCodeError, is_out_of_memory, one_line
from dynadiag.errors import DynadiagError, UsageError
from dynadiag.torch_compat.dynamo.backend import forget_backends_of


def load_step(target: str, switch: CompileSwitch) -> Step:
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
    kind: type[Step] = CallUnit if arguments else WholeStep
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
