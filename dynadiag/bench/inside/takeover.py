"""Running a script unchanged up to the n-th call of something that it compiled, and taking over there.

Until then compiled callables run uncompiled, so that every arm arrives with the same state and nothing is in a cache. What follows runs
inside that call: the script's objects, grad mode, autocast and other contexts are as they are, and the script never goes on.
"""

from __future__ import annotations

import runpy
import sys
import types
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from dynadiag.bench.inside.loading import UserCodeError, is_out_of_memory, one_line
from dynadiag.bench.inside.patching import EAGER, CompileSwitch
from dynadiag.bench.inside.process_group import stay_alone
from dynadiag.bench.inside.reference import run_and_collect
from dynadiag.bench.inside.shapes import Mode, Seen, ShapeLog, ShapeReplay, most_seen
from dynadiag.bench.inside.snapshot import Snapshot, seed_generators, take_snapshot
from dynadiag.bench.inside.state import find_state
from dynadiag.bench.inside.steps import CallUnit
from dynadiag.errors import DynadiagError, UsageError
from dynadiag.record.import_hook import ImportWatcher
from dynadiag.torch_compat.dynamo.watched_calls import CallGate, original_of

_FREED = "backward through the graph a second time"


class ScriptEndedError(DynadiagError):
    """The script ended before the call that was waited for; `calls` says how many there were."""

    slug = "ended"

    def __init__(self, message: str, calls: int) -> None:
        super().__init__(message)
        self.calls = calls


@dataclass(frozen=True, kw_only=True)
class Watched:
    """What one call of `torch.compile` gave: its number in the script (from 1), the name of what it compiles, and where that was asked."""

    number: int
    name: str
    place: str
    compiled: Any
    options: Mapping[str, Any]

    @property
    def group(self) -> tuple[str, str]:
        """Callables with the same name from the same line are pieces of one kind (a layer in a loop)."""
        return self.name, self.place


class ScriptRun:
    """One run of a script; `hand_over` gets a function that makes the step, at the call that is waited for, and never returns."""

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
    ) -> None:
        self.replay: ShapeReplay | None = None
        self._log = ShapeLog(without_history) if shapes else None
        self._path = path
        self._arguments = list(arguments)
        self._call = call
        self._chosen = chosen
        self._switch = switch
        self._hand_over = hand_over
        self._gate = CallGate(self._before)
        self._watched: list[Watched] = []
        self._calls: Counter[int] = Counter()

    def run(self) -> NoReturn:
        """Run the script until it is taken over. Raises ScriptEndedError when it ends first, UsageError or UserCodeError when it fails."""
        self._switch.watch = self._watch
        ImportWatcher({"torch": self._torch_is_there}).install()
        sys.argv = [self._path, *self._arguments]
        sys.path.insert(0, str(Path(self._path).resolve().parent))
        try:
            runpy.run_path(self._path, run_name="__main__")
        except SystemExit as end:
            raise self._ended(f" with exit status {end.code}" if end.code not in (None, 0) else "") from None
        except DynadiagError:
            raise
        except Exception as error:  # the border around user code
            if "torch" in sys.modules and is_out_of_memory(error):
                raise
            raise UserCodeError(f"{self._path} raised {one_line(error)}, before {self._awaited()}{_launcher(error)}") from error
        raise self._ended("")

    def _torch_is_there(self, torch: Any) -> None:
        self._switch.install()
        stay_alone(torch)
        seed_generators()

    def _watch(self, compiled: Any, model: Any, options: Mapping[str, Any]) -> Any:
        import torch

        if not self._watched:
            torch.compiler.set_stance("force_eager")
        number = len(self._watched) + 1
        self._watched.append(Watched(number=number, name=_name(model), place=_place(), compiled=compiled, options=dict(options)))
        return self._gate.watch(compiled, number)

    def _before(self, number: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._calls[number] += 1
        watched = self._watched[number - 1]
        if self._log is not None and self._is_meant(watched):
            self._log.note(number, self._calls[number], original_of(watched.compiled), args, kwargs)
        if self._calls[number] >= self._call and self._is_meant(watched):
            self._hand_over(lambda: self._take(watched, args, kwargs))

    def _is_meant(self, watched: Watched) -> bool:
        return self._chosen is None or self._chosen in (watched.name, str(watched.number))

    def _take(self, watched: Watched, args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallUnit:
        import torch

        self._gate.open()
        self._switch.watch = None
        others = {other.group for other in self._watched if self._calls[other.number] and self._is_meant(other)}
        if len(others) > 1:
            raise UsageError(f"{self._path} calls several compiled callables: {self._list()}; choose one with --callable")
        where = f"call {self._calls[watched.number]} of {watched.name} ({watched.place})"
        unit = _unit(watched, args, kwargs, self._switch, where) if self._log is None else self._most_seen(watched, args, kwargs, where)
        _settle(unit)
        if self._log is not None:
            self.replay = self._replay(watched, unit, self._log)
        if self._switch.arm != EAGER:
            torch.compiler.set_stance("default")
        return unit

    def _most_seen(self, watched: Watched, args: tuple[Any, ...], kwargs: dict[str, Any], where: str) -> CallUnit:
        """The call with the shapes that most calls had; the last one where no other's arguments are there."""
        assert self._log is not None
        mode = Mode.of(original_of(watched.compiled))
        found = most_seen(self._log.seen(watched.number), mode)
        if found is None or found.arguments is None:
            return _unit(watched, args, kwargs, self._switch, where)
        share = f"the shapes of {found.calls} of the first {self._calls[watched.number]} calls"
        where = f"call {found.first_call} of {watched.name} ({watched.place}), {share}"
        return _unit(watched, found.arguments, found.keywords, self._switch, where)

    def _replay(self, watched: Watched, unit: CallUnit, log: ShapeLog) -> ShapeReplay:
        def make(one: Seen) -> CallUnit:
            assert one.arguments is not None
            return _unit(watched, one.arguments, one.keywords, self._switch, f"call {one.first_call}")

        return ShapeReplay.of(unit, log.seen(watched.number), Mode.of(unit.original), make)

    def _list(self) -> str:
        called = [one for one in self._watched if self._calls[one.number]]
        groups = list(dict.fromkeys(one.group for one in called))
        firsts = [next(one for one in called if one.group == group) for group in groups]
        counts = Counter(one.group for one in called)
        return ", ".join(f"{one.number}: {one.name} ({one.place}{_times(counts[one.group])})" for one in firsts[:12])

    def _awaited(self) -> str:
        what = f"the compiled callable {self._chosen}" if self._chosen else "a compiled callable"
        return f"call {self._call} of {what}"

    def _ended(self, how: str) -> ScriptEndedError:
        ended = f"{self._path} ended{how}"
        if not self._watched:
            return ScriptEndedError(f"{ended} and compiled nothing: there is no call of a compiled callable to compare", 0)
        meant = [one for one in self._watched if self._is_meant(one)]
        if not meant:
            known = ", ".join(dict.fromkeys(f"{one.number}: {one.name} ({one.place})" for one in self._watched[:12]))
            return ScriptEndedError(f"{ended}; it compiles no {self._chosen!r}, but {known}", 0)
        calls = max(self._calls[one.number] for one in meant)
        if not calls:
            return ScriptEndedError(f"{ended} and never called what it compiled: {meant[0].name} ({meant[0].place})", 0)
        return ScriptEndedError(f"{ended} before {self._awaited()}", calls)


def _launcher(error: Exception) -> str:
    """A hint where a script misses what torchrun would have set."""
    missing = "environment variable" in str(error) and "expected, but not set" in str(error)
    return "; bench runs one process: let the script run alone, without torchrun" if missing else ""


def _times(count: int) -> str:
    return f", {count} of them" if count > 1 else ""


def _name(model: Any) -> str:
    """A name for what is compiled: a function's own name, or the class of a module; never its repr."""
    if isinstance(model, types.MethodType):
        owner = type(model.__self__).__name__
        return owner if model.__name__ == "_call_impl" else f"{owner}.{model.__name__}"
    name = getattr(model, "__qualname__", None)
    return name.rpartition("<locals>.")[2] if isinstance(name, str) else type(model).__name__


def _place() -> str:
    """The innermost line outside torch and this package that asked for compilation."""
    import torch

    ours = (str(Path(torch.__file__).parent), str(Path(__file__).parents[2]))
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(ours):
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"


def _unit(watched: Watched, args: tuple[Any, ...], kwargs: Mapping[str, Any], switch: CompileSwitch, where: str) -> CallUnit:
    import torch

    original = original_of(watched.compiled)
    function = original if switch.arm == EAGER else switch.original(original, **switch.merged(watched.options))
    arguments = without_history(args)
    keywords = without_history(dict(kwargs))
    return CallUnit(
        original=original,
        function=function,
        arguments=arguments,
        keywords=keywords,
        compiled_by="program",
        taken=True,
        where=where,
        options=watched.options,
        autocast=tuple(device for device in ("cuda", "cpu") if torch.is_autocast_enabled(device)),
    )


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
        unit.run(unit.original)
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
