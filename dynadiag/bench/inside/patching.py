"""`torch.compile` as an arm wants it: the program's own calls keep their place, the arm decides the mode or the backend."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dynadiag.capture.compiled_calls import replace_compile

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
