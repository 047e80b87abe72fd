"""What a program has made when it ends, wherever it holds it: parameters, optimizers, attributes of modules, its script's global names."""

from __future__ import annotations

import functools
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch

from dynadiag.capture.reach import RandomStates
from dynadiag.torch_compat.pytree import tree_leaves

_PLAIN = (bool, int, float, str)
_CONTAINERS = (list, tuple, dict, set, frozenset)
_MOST_LEAVES = 10_000
_OF_MODULES = frozenset(("training",))
Copy = Callable[[str, str, Any], Any]


class ProgramState:
    """Keeps the modules and the optimizers that a program makes alive, in the order in which they first register or begin something.

    `install` before the program makes its first one. Modules are seen by torch's own hooks for what is registered, so that nothing of
    `forward` changes.
    """

    def __init__(self) -> None:
        self._modules: dict[int, torch.nn.Module] = {}
        self._optimizers: dict[int, torch.optim.Optimizer] = {}

    def install(self) -> None:
        """From now on what is made is kept."""
        hooks = torch.nn.modules.module
        hooks.register_module_parameter_registration_hook(self._keep)
        hooks.register_module_buffer_registration_hook(self._keep)
        hooks.register_module_module_registration_hook(self._keep)
        plain = torch.optim.Optimizer.__init__

        @functools.wraps(plain)
        def begin(optimizer: Any, *args: Any, **kwargs: Any) -> None:
            plain(optimizer, *args, **kwargs)
            self._optimizers.setdefault(id(optimizer), optimizer)

        torch.optim.Optimizer.__init__ = begin  # type: ignore[assignment,method-assign]

    def _keep(self, module: torch.nn.Module, name: str, value: Any) -> None:
        self._modules.setdefault(id(module), module)

    def entries(self, copy: Copy) -> list[tuple[str, str, Any]]:
        """(where, name, value) of all of it; tensors as `copy` makes them, the same tensor once."""
        drawn = [("random numbers", name, digest) for name, digest in RandomStates.now(wake_numpy=False).digests().items()]
        return [*self._of_parameters(copy), *self._of_optimizers(copy), *self._of_attributes(copy), *_of_globals(copy), *drawn]

    def _of_parameters(self, copy: Copy) -> Iterator[tuple[str, str, Any]]:
        seen: set[int] = set()
        for module in self._modules.values():
            for name, parameter in module._parameters.items():
                if parameter is None or id(parameter) in seen or not _is_known(parameter):
                    continue
                seen.add(id(parameter))
                title = f"{len(seen) - 1} ({type(module).__name__}.{name})"
                yield "parameter", title, copy("parameter", title, parameter)
                gradient = parameter.grad
                title_of_gradient = f"of {title}"
                yield "parameter gradient", title_of_gradient, None if gradient is None else copy("gradient", title_of_gradient, gradient)

    def _of_optimizers(self, copy: Copy) -> Iterator[tuple[str, str, Any]]:
        for number, optimizer in enumerate(self._optimizers.values()):
            title = f"{number} ({type(optimizer).__name__})"
            parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
            for index, group in enumerate(optimizer.param_groups):
                for name, value in group.items():
                    if name != "params":
                        yield from _values("optimizer", f"{title} group {index} {name}", value, copy)
            for index, parameter in enumerate(parameters):
                for name, value in optimizer.state.get(parameter, {}).items():
                    yield from _values("optimizer", f"{title} parameter {index} {name}", value, copy)

    def _of_attributes(self, copy: Copy) -> Iterator[tuple[str, str, Any]]:
        """Buffers and plain attributes, by class and name, since an edit may add a module between others."""
        numbers: Counter[str] = Counter()
        for module in self._modules.values():
            plain = {name: value for name, value in vars(module).items() if not name.startswith("_") and name not in _OF_MODULES}
            for name, value in {**module._buffers, **plain}.items():
                title = f"{type(module).__name__}.{name}"
                yield from _values("attribute", f"{title} {numbers[title]}", value, copy)
                numbers[title] += 1


def _of_globals(copy: Copy) -> Iterator[tuple[str, str, Any]]:
    for name, value in list(vars(sys.modules["__main__"]).items()):
        if not name.startswith("__"):
            yield from _values("global", name, value, copy)


def _values(where: str, name: str, value: Any, copy: Copy) -> Iterator[tuple[str, str, Any]]:
    """The values in a value: a tensor, plain data, or a container of these, whose length counts too."""
    if isinstance(value, torch.Tensor) and _is_known(value):
        yield where, name, copy(where, name, value)
    elif isinstance(value, _PLAIN):
        yield where, name, value
    elif type(value) in _CONTAINERS and len(value) <= _MOST_LEAVES:
        leaves = sorted(value, key=repr) if isinstance(value, set | frozenset) else tree_leaves(value)
        if len(leaves) <= _MOST_LEAVES and all(isinstance(leaf, (torch.Tensor, *_PLAIN, type(None))) for leaf in leaves):
            yield where, f"len({name})", len(leaves)
            for index, leaf in enumerate(leaves):
                yield from _values(where, f"{name}[{index}]", leaf, copy)


def _is_known(value: torch.Tensor) -> bool:
    """Whether it has a value: not one of a lazy module that has not run."""
    return not torch.nn.parameter.is_lazy(value)
