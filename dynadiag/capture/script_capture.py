"""Running a script unchanged up to the n-th call of something that it compiled, which is handed over; the script never goes on.

What follows runs inside that call: the script's objects, grad mode, autocast and other contexts are as they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, NoReturn

from dynadiag.capture.compiled_calls import After, Before, CompiledCallable, CompiledCalls
from dynadiag.capture.reach import Mode, RandomStates
from dynadiag.capture.script import ScriptEndedError, run_script
from dynadiag.errors import UsageError
from dynadiag.torch_compat.trace.profile_events import count_dispatched, profiler_runs, start_profiler, stop_profiler


@dataclass(frozen=True, kw_only=True)
class CapturedCall:
    """A call of a script that is about to be made: what is called, the number of the call (from 1), its arguments, which are the script's
    own objects, and what is in force around it. `why_this` says why it was taken where the script calls several compiled callables.
    """

    callee: CompiledCallable
    number: int
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    mode: Mode
    random: RandomStates
    why_this: str = ""

    @property
    def where(self) -> str:
        """Which call this is, in words."""
        return f"call {self.number} of {self.callee.name} ({self.callee.place}){self.why_this}"


class ScriptCapture:
    """One run of a script up to call `call` of the compiled callable `chosen` (its name or number).

    With None of the only one, or of the one whose first call dispatches most operators, which is the same in each run of the script.

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
        self._operators: dict[tuple[str, str], int] = {}
        self._picked: tuple[str, str] | None = None
        self._calls = CompiledCalls(self._before)

    def run_until_taken(self) -> NoReturn:
        """Run the script until its call is taken. Raises ScriptEndedError when it ends first, UsageError or UserCodeError when it fails."""
        watched: dict[str, Callable[[ModuleType], None]] = {"torch": self._begin}
        raise self._ended(run_script(self._path, self._arguments, watched=watched, before=self._awaited(), module=self._module))

    def _begin(self, torch: ModuleType) -> None:
        self._calls.install()
        if self._torch_is_there is not None:
            self._torch_is_there(torch)

    def _before(self, callee: CompiledCallable, number: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> After | None:
        if not self._is_meant(callee):
            return None
        if self._note is not None:
            self._note(callee, number, args, kwargs)
        if number >= self._call:
            self._picked = self._picked or self._largest()
            if self._picked in (None, callee.group):
                self._hand_over(lambda: self._take(callee, number, args, kwargs))
        if self._chosen is not None or callee.group in self._operators or profiler_runs():
            return None
        return self._count(callee)

    def _count(self, callee: CompiledCallable) -> After:
        """Count what the first call of a kind of callables dispatches, in torch's older profiler."""
        start_profiler()

        def ended(_result: Any, _raised: BaseException | None) -> None:
            if profiler_runs():  # the program may have ended it
                self._operators[callee.group] = count_dispatched(stop_profiler()).outside

        return ended

    def _largest(self) -> tuple[str, str] | None:
        """The kind of callables whose call has most operators; None for a single one, and where it is not known."""
        called = {
            compiled_callable.group
            for compiled_callable in self._calls.known
            if self._calls.counts[compiled_callable.number] and self._is_meant(compiled_callable)
        }
        counts = sorted((self._operators.get(group, -1) for group in called), reverse=True)
        if len(called) < 2 or counts[-1] < 0 or counts[0] == counts[1]:
            return None
        return next(group for group in called if self._operators[group] == counts[0])

    def _is_meant(self, callee: CompiledCallable) -> bool:
        return self._chosen is None or self._chosen in (callee.name, str(callee.number))

    def _take(self, callee: CompiledCallable, number: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> CapturedCall:
        self._calls.stop()
        called = [compiled_callable for compiled_callable in self._calls.known if self._calls.counts[compiled_callable.number]]
        why_this = ""
        if self._picked is not None:
            others = len({item.group for item in called}) - 1
            why_this = f", with more operators ({self._operators[self._picked]:,}) than {_others(others)}, which --callable can choose"
        elif len({element.group for element in called if self._is_meant(element)}) > 1:
            counts = Counter(entry.group for entry in called)
            firsts = [next(one for one in called if one.group == group) for group in counts]
            listed = ", ".join(_listed(first, counts[first.group]) for first in firsts[:12])
            raise UsageError(f"{self._path} calls several compiled callables: {listed}; choose one with --callable")
        return CapturedCall(
            callee=callee,
            number=number,
            args=args,
            kwargs=kwargs,
            mode=Mode.of(callee.original),
            random=RandomStates.now(),
            why_this=why_this,
        )

    def _awaited(self) -> str:
        what = f"the compiled callable {self._chosen}" if self._chosen else "a compiled callable"
        return f"call {self._call} of {what}"

    def _ended(self, how: str) -> ScriptEndedError:
        ended, known = f"{self._path} ended{how}", self._calls.known
        if not known:
            return ScriptEndedError(f"{ended} and compiled nothing, so there is no call of a compiled callable to compare", 0)
        meant = [compiled_callable for compiled_callable in known if self._is_meant(compiled_callable)]
        if not meant:
            listed = ", ".join(dict.fromkeys(_listed(item) for item in known[:12]))
            return ScriptEndedError(f"{ended}; it compiles no {self._chosen!r}, but {listed}", 0)
        calls = max(self._calls.counts[element.number] for element in meant)
        if not calls:
            return ScriptEndedError(f"{ended} and never called what it compiled: {meant[0].name} ({meant[0].place})", 0)
        return ScriptEndedError(f"{ended} before {self._awaited()}", calls)


def _others(count: int) -> str:
    return "the other compiled callable" if count == 1 else f"the {count} other compiled callables"


def _listed(compiled_callable: CompiledCallable, times: int = 1) -> str:
    return f"{compiled_callable.number}: {compiled_callable.name} ({compiled_callable.place}{f', {times} of them' if times > 1 else ''})"
