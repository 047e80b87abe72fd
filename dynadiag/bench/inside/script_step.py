"""From the call at which a script was taken over to the step that is timed.

Until then compiled callables run uncompiled, so that every arm arrives with the same state and nothing is in a cache.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn

from dynadiag.bench.inside.loading import EAGER, CompileSwitch, stay_alone
from dynadiag.bench.inside.reference import run_and_collect
from dynadiag.bench.inside.shapes import SeenShape, ShapeLog, ShapeReplay, most_seen
from dynadiag.bench.inside.steps import CallUnit
from dynadiag.capture.compiled_calls import CompiledCallable
from dynadiag.capture.reach import Snapshot, find_state, seed_generators, take_snapshot
from dynadiag.capture.script_capture import CapturedCall, ScriptCapture

_FREED = "backward through the graph a second time"


class ScriptStep:
    """A script run up to one of its calls; `hand_over` gets a function that makes the step there, and never returns.

    With `shapes` the step is the call with the shapes that most calls had, if its arguments are there; `replay` has all.
    """

    def __init__(
        self,
        path: str,
        *,
        arguments: Sequence[str],
        call: int,
        chosen: str | None,
        switch: CompileSwitch,
        hand_over: Callable[[Callable[[], CallUnit]], NoReturn],
        shapes: bool = False,
        module: str | None = None,
    ) -> None:
        self.replay: ShapeReplay | None = None
        self._log = ShapeLog(without_history) if shapes else None
        self._switch = switch
        self._autocast = _AutocastScopes()
        self._capture = ScriptCapture(
            path,
            arguments=arguments,
            call=call,
            chosen=chosen,
            module=module,
            hand_over=lambda take: hand_over(lambda: self._make(take())),
            note=self._note,
            torch_is_there=self._torch_is_there,
        )

    def run_until_taken(self) -> NoReturn:
        """Run the script until it is taken over. Raises ScriptEndedError when it ends first, UsageError or UserCodeError when it fails."""
        self._switch.on = False
        self._capture.run_until_taken()

    def _note(self, callee: CompiledCallable, number: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._autocast.call()
        if self._log is not None:
            self._log.note(callee, number, args, kwargs)

    def _torch_is_there(self, torch: Any) -> None:
        self._switch.install()
        self._autocast.watch(torch)
        stay_alone(torch)
        seed_generators()

    def _make(self, captured: CapturedCall) -> CallUnit:
        import torch

        self._switch.on = True
        seen = [] if self._log is None else self._log.seen(captured.callee.number)
        found = most_seen(seen, captured.mode)
        unit = self._unit(captured, captured.args, captured.kwargs, captured.where) if found is None else self._most_seen(captured, found)
        _settle(unit)
        if self._log is not None:
            self.replay = ShapeReplay.of(unit, seen, captured.mode, lambda item: self._of_shape(captured, item, f"call {item.first_call}"))
        if self._switch.arm != EAGER:
            torch.compiler.set_stance("default")
        return unit

    def _most_seen(self, captured: CapturedCall, found: SeenShape) -> CallUnit:
        share = f"the shapes of {found.calls} of the first {captured.number} calls"
        return self._of_shape(captured, found, f"{replace(captured, number=found.first_call).where}, {share}")

    def _of_shape(self, captured: CapturedCall, seen: SeenShape, where: str) -> CallUnit:
        assert seen.arguments is not None
        return self._unit(captured, seen.arguments, seen.keywords, where)

    def _unit(self, captured: CapturedCall, args: tuple[Any, ...], kwargs: Mapping[str, Any], where: str) -> CallUnit:
        original, options, switch = captured.callee.original, captured.callee.options, self._switch
        return CallUnit(
            original=original,
            function=original if switch.arm == EAGER else switch.original(original, **switch.merged(options)),
            arguments=without_history(args),
            keywords=without_history(dict(kwargs)),
            compiled_by="program",
            taken=True,
            where=where,
            options=options,
            autocast=captured.mode.autocast,
            casts_again=self._autocast.ended_before_last_call,
        )


class _AutocastScopes:
    """Whether the script's autocast ended between its last two calls: torch then drops the casts of weights that autocast keeps
    (torch/amp/autocast_mode.py, `autocast.__exit__`; 2.11 and 2.15). A script of one call counts as one that ends it.
    """

    def __init__(self) -> None:
        self._ends = 0
        self._at_calls: tuple[int, ...] = ()

    def watch(self, torch: Any) -> None:
        clear = torch.clear_autocast_cache

        def counted() -> None:
            self._ends += 1
            clear()

        torch.clear_autocast_cache = counted

    def call(self) -> None:
        self._at_calls = (*self._at_calls[-1:], self._ends)

    @property
    def ended_before_last_call(self) -> bool:
        return len(self._at_calls) < 2 or self._at_calls[0] != self._at_calls[1]


def without_history(value: Any) -> Any:
    """The same arguments, but a tensor that other operations made is cut from them: its gradient is then a result of the call."""
    import torch

    if isinstance(value, torch.Tensor):
        return value.detach().requires_grad_() if value.requires_grad and not value.is_leaf else value
    if type(value) in (list, tuple):
        return type(value)(without_history(item) for item in value)
    if type(value) is dict:
        return {key: without_history(item) for key, item in value.items()}
    return value


def _settle(unit: CallUnit) -> None:
    """Find out, uncompiled, whether the callable runs its own backward (then ours would go through a graph that is gone), and whether a
    call without a backward reads gradients.
    """
    snapshot = take_snapshot(find_state(unit.original, unit.arguments, unit.keywords))
    unit.keeps_gradients = bool(snapshot.gradients)
    try:
        unit.run_step(unit.original)
    except RuntimeError as error:
        if _FREED not in str(error):
            raise
        unit.own_backward = True
    finally:
        snapshot.restore()
    unit.keeps_gradients &= not unit.own_backward and not unit.backward and _reads_gradients(unit, snapshot)


def _reads_gradients(unit: CallUnit, snapshot: Snapshot) -> bool:
    """Whether a call does something else, or raises, without the gradients that it finds."""
    try:
        found = run_and_collect(unit, unit.original)
        snapshot.restore()
        unit.keeps_gradients = False
        without = run_and_collect(unit, unit.original)
    except Exception:  # noqa: BLE001 - the border around user code
        return True
    finally:
        unit.keeps_gradients = True
        snapshot.restore()
    results = [name for name in found if not name.startswith("gradient of ")]
    return any(name not in without or not _equal(found[name], without[name]) for name in results)


def _equal(value: Any, other: Any) -> bool:
    import torch

    return value.dtype == other.dtype and torch.equal(value, other)
