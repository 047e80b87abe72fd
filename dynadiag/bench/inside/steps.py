"""The thing that is timed: a whole step of the user's, or one call with its backward."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from dynadiag.bench.inside.results import tensors_in
from dynadiag.capture.reach import find_state

_COTANGENT_SEED = 20
_OF_SCALARS = 1.5


@dataclass(kw_only=True)
class TimedStep(ABC):
    """`original` is the function as the program has it, `function` what this arm calls; `run` does one step and gives its output."""

    original: Callable[..., Any]
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    compiled_by: str
    keywords: Mapping[str, Any] = field(default_factory=dict)
    taken: bool = False

    @abstractmethod
    def run_step(self, function: Callable[..., Any] | None = None) -> Any:
        """One step, with `function` in the place of the arm's."""

    def _chosen(self, function: Callable[..., Any] | None) -> Callable[..., Any]:
        # Not `or`: a module may have a length, or refuse to have one.
        return self.function if function is None else function

    @property
    @abstractmethod
    def what(self) -> str:
        """What one step comprises, in words."""


class WholeStep(TimedStep):
    """The user's own step: whatever it does is what is timed."""

    def run_step(self, function: Callable[..., Any] | None = None) -> Any:
        """One call without arguments."""
        return self._chosen(function)()

    @property
    def what(self) -> str:
        """The function as it is."""
        return "the whole step as written"


@dataclass(kw_only=True)
class CallUnit(TimedStep):
    """One call with its arguments: forward, and backward with fixed cotangents where grad mode is on and an output needs it.

    `own_backward` says that the callable runs a backward itself, `keeps_gradients` that it reads the gradients that it finds, `where`
    which call of a script this is, `autocast` for which devices the script had autocast on; backward runs without, as torch advises.
    `casts_again` says that the script's autocast ends before the next call, so that weights are cast anew. `options` are those that the
    script compiled the callable with.
    """

    cotangents: dict[str, Any] = field(default_factory=dict)
    backward: bool = False
    own_backward: bool = False
    keeps_gradients: bool = False
    leaves: tuple[Any, ...] | None = None
    where: str = ""
    autocast: tuple[str, ...] = ()
    casts_again: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)

    def run_step(self, function: Callable[..., Any] | None = None) -> Any:
        """Forward, then backward; gradients are dropped first, as a training loop does."""
        if self.casts_again:
            import torch

            torch.clear_autocast_cache()
        if self.own_backward:
            return self._chosen(function)(*self.arguments, **self.keywords)
        self.drop_gradients()
        output = self._chosen(function)(*self.arguments, **self.keywords)
        outputs = {name: value for name, value in tensors_in("output", output).items() if value.requires_grad}
        self.backward = bool(outputs)
        if outputs:
            self.go_back(outputs)
        return output

    def go_back(self, outputs: Mapping[str, Any]) -> None:
        """Backward from outputs, named as in the output of the call, with the fixed cotangents."""
        import torch

        with ExitStack() as stack:
            for device in self.autocast:
                stack.enter_context(torch.autocast(device, enabled=False))
            torch.autograd.backward(list(outputs.values()), [self._cotangent(name, value) for name, value in outputs.items()])

    @property
    def what(self) -> str:
        """Whether there is a backward, and which call this is."""
        what = "forward and backward with fixed cotangents" if self.backward else "forward"
        if self.own_backward:
            what = "the call, including the backward that it runs itself"
        elif self.keeps_gradients:
            what = "the call, with the gradients that it finds"
        return f"{what}, {self.where}" if self.where else what

    def _cotangent(self, name: str, value: Any) -> Any:
        import torch

        made = self.cotangents.get(name)
        if made is None or made.shape != value.shape or made.dtype != value.dtype:
            drawn = torch.randn(value.shape, generator=torch.Generator().manual_seed(_COTANGENT_SEED), dtype=torch.float32)
            # Rounded to bfloat16, so that the same cotangent exists in every floating dtype.
            # Not 1 for a scalar: a backward that ignores its cotangent would then be right.
            made = torch.full_like(value, _OF_SCALARS) if value.numel() == 1 else drawn.bfloat16().to(value.device, value.dtype)
            self.cotangents[name] = made
        return made

    def drop_gradients(self) -> None:
        """As a training loop does before each step; nothing where the call reads them, as an optimizer's step does."""
        if self.keeps_gradients:
            return
        if self.leaves is None:
            held = find_state(self.original, self.arguments, self.keywords).held.values()
            self.leaves = tuple(item.tensor for item in held if item.tensor.is_leaf and item.tensor.requires_grad)
        for value in self.leaves:
            value.grad = None
