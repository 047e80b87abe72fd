"""Running a script unchanged up to the n-th call of something that it compiled, which is handed over; the script never goes on.

What follows runs inside that call: the script's objects, grad mode, autocast and other contexts are as they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, NoReturn

from dynadiag.capture.call_state import Mode, RandomStates
from dynadiag.capture.compiled_calls import Before, CompiledCallable, CompiledCalls
from dynadiag.capture.script import ScriptEndedError, run_script
from dynadiag.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class CapturedCall:
    """A call of a script that is about to be made: what is called, the number of the call (from 1), its arguments, which are the script's
    own objects, and what is in force around it.
    """

    callee: CompiledCallable
    number: int
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    mode: Mode
    random: RandomStates

    @property
    def where(self) -> str:
        """Which call this is, in words."""
        return f"call {self.number} of {self.callee.name} ({self.callee.place})"


class ScriptCapture:
    """One run of a script up to call `call` of the compiled callable `chosen` (its name or number; None where there is one).

    There `hand_over` gets a function that gives the call, and never returns. `note` is told of each call before, and of that one.
    `torch_is_there` is called with torch once it is imported. `module` is the script's name where it runs as `python -m`.
    """

    def __init__(
        self,
        path: str,
        *,
        arguments: Sequence[str] = (),
        call: int = 1,
        chosen: str | None = None,
        hand_over: Callable[[Callable[[], CapturedCall]], NoReturn],
        note: Before | None = None,
        torch_is_there: Callable[[ModuleType], None] | None = None,
        module: str | None = None,
    ) -> None:
        self._path = path
        self._arguments = arguments
        self._call = call
        self._chosen = chosen
        self._hand_over = hand_over
        self._note = note
        self._torch_is_there = torch_is_there
        self._module = module
        self._calls = CompiledCalls(self._before)

    def run(self) -> NoReturn:
        """Run the script until its call is taken. Raises ScriptEndedError when it ends first, UsageError or UserCodeError when it fails."""
        watched: dict[str, Callable[[ModuleType], None]] = {"torch": self._begin}
        raise self._ended(run_script(self._path, self._arguments, watched=watched, before=self._awaited(), module=self._module))

    def _begin(self, torch: ModuleType) -> None:
        self._calls.install()
        if self._torch_is_there is not None:
            self._torch_is_there(torch)

    def _before(self, callee: CompiledCallable, number: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not self._is_meant(callee):
            return
        if self._note is not None:
            self._note(callee, number, args, kwargs)
        if number >= self._call:
            self._hand_over(lambda: self._take(callee, number, args, kwargs))

    def _is_meant(self, callee: CompiledCallable) -> bool:
        return self._chosen is None or self._chosen in (callee.name, str(callee.number))

    def _take(self, callee: CompiledCallable, number: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> CapturedCall:
        self._calls.stop()
        called = [one for one in self._calls.known if self._calls.counts[one.number]]
        if len({one.group for one in called if self._is_meant(one)}) > 1:
            counts = Counter(one.group for one in called)
            firsts = [next(one for one in called if one.group == group) for group in counts]
            listed = ", ".join(_listed(one, counts[one.group]) for one in firsts[:12])
            raise UsageError(f"{self._path} calls several compiled callables: {listed}; choose one with --callable")
        return CapturedCall(
            callee=callee, number=number, args=args, kwargs=kwargs, mode=Mode.of(callee.original), random=RandomStates.now()
        )

    def _awaited(self) -> str:
        what = f"the compiled callable {self._chosen}" if self._chosen else "a compiled callable"
        return f"call {self._call} of {what}"

    def _ended(self, how: str) -> ScriptEndedError:
        ended, known = f"{self._path} ended{how}", self._calls.known
        if not known:
            return ScriptEndedError(f"{ended} and compiled nothing, so there is no call of a compiled callable to compare", 0)
        meant = [one for one in known if self._is_meant(one)]
        if not meant:
            listed = ", ".join(dict.fromkeys(_listed(one) for one in known[:12]))
            return ScriptEndedError(f"{ended}; it compiles no {self._chosen!r}, but {listed}", 0)
        calls = max(self._calls.counts[one.number] for one in meant)
        if not calls:
            return ScriptEndedError(f"{ended} and never called what it compiled: {meant[0].name} ({meant[0].place})", 0)
        return ScriptEndedError(f"{ended} before {self._awaited()}", calls)


def _listed(one: CompiledCallable, times: int = 1) -> str:
    return f"{one.number}: {one.name} ({one.place}{f', {times} of them' if times > 1 else ''})"
