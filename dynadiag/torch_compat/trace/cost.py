"""Run time of compiled code: a few steady calls under torch's own profiler, started and stopped from inside the program."""

from __future__ import annotations

import functools
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType, ModuleType
from typing import Any

from dynadiag.torch_compat.dynamo.user_compiler import watch_compiler
from dynadiag.torch_compat.trace.compiled_work import SETTER, compiled_name, encloses
from dynadiag.torch_compat.trace.hooks import Hooks, Sink, callback_switch, disguise
from dynadiag.torch_compat.trace.profile_events import CALL, GRAPH, Profiled, read_events, summarise, timeline

_WARM_ROUNDS = 3
_ROUNDS = 20
_MAX_ATTEMPTS = 5
# After so many calls without a profiler the device is waited for, and their length is known; a program may end before the last of them.
_TIMED = (7, 13, _ROUNDS)
_MOST_TIMED = 5_000


class CostMeter:
    """Profiles once the program is steady: a function was called three times and nothing compiled meanwhile; then for 20 more of its calls.

    What counts are the calls of compiled functions that no other compiled function calls, whatever runs in them: a function that Dynamo
    gave up has no region of its own.

    A compilation meanwhile, or a profiler that the program starts itself, discards what was measured, and the wait begins again (at most
    five times). With CUDA the device is in the profile and is waited for before and after it; the next 20 (7 at least) are timed without,
    and then as many as there are.
    """

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._lock = threading.RLock()
        self._starting = False
        self._calls: Counter[int] = Counter()
        self._functions: dict[Any, tuple[int, str]] = {}
        self._open: _OpenCall | None = None
        self._profile: Any = None
        self._starter: tuple[int, int] = (-1, 0)
        self._attempts = 0
        self._done = False
        self._switch = callback_switch()
        self._profiled: Profiled | None = None
        self._period_ns: float | None = None
        self._timed_from = 0
        self._told = False
        self._next = 0

    @property
    def done(self) -> bool:
        """Whether all is written, or nothing can be measured any more."""
        return self._done

    def watch_calls(self, eval_frame: ModuleType, hooks: Hooks) -> None:
        """See where calls of compiled functions end; where they begin `begins` is told."""

        def put_in() -> None:
            original = getattr(eval_frame, SETTER)

            def dynadiag_end(value: Any) -> Any:
                if self._open is not None and self._open.ends(sys._getframe(1), value):
                    self._close()
                return original(value)

            hooks.replace(eval_frame, SETTER, disguise(dynadiag_end, eval_frame.__file__))

        hooks.install("cost_calls", put_in)

    def begins(self, callback: Any, frame: FrameType) -> None:
        """A call of something compiled begins; `frame` is that of torch's wrapper. Dynamo's callback is off."""
        try:
            with self._lock:
                if frame.f_code.co_name == "__enter__" or self._is_inner(frame):
                    return
                number, name = self._functions.setdefault(callback, (len(self._functions), compiled_name(frame.f_locals.get("fn"))))
                self._step(number)
                if self._profile is not None and "prior" in frame.f_locals:
                    marker = sys.modules["torch"]._C._profiler._RecordFunctionFast(f"{CALL}{number} {name}")
                    marker.__enter__()
                    self._open = _OpenCall(frame, frame.f_locals["prior"], marker, threading.get_ident())
        except Exception as error:  # noqa: BLE001 - border: our profiling in the user's process
            self._done, self._profile, self._open = True, None, None
            self._say(f"the profiler failed: {type(error).__name__}: {error}")

    def _is_inner(self, frame: FrameType) -> bool:
        """Whether a call that has not ended makes this one, or runs in another thread."""
        if self._open is None:
            return encloses(frame)
        if self._open.thread != threading.get_ident() or self._open.encloses(frame):
            return True
        self._close()  # its end was not seen
        return False

    def _close(self) -> None:
        opened, self._open = self._open, None
        if opened is not None:
            opened.marker.__exit__(None, None, None)

    def count_calls_of(self, output_graph: ModuleType, hooks: Hooks) -> None:
        """Mark each call of a compiled graph; nothing is marked of code that torch wants to serialise."""
        self._switch = callback_switch()

        def begin(output_graph: Any, module: Any, inputs: Any) -> bool:
            return getattr(output_graph, "package", None) is not None

        def end(is_serialised: bool, compiled: Any) -> Any:
            return compiled if is_serialised else self._counted(compiled)

        watch_compiler(output_graph, begin, end=end, replace=hooks.replace)
        profiler = sys.modules.get("torch.autograd.profiler")
        if profiler is not None:
            hooks.watch(profiler, "_prepare_profiler", before=lambda args, kwargs: self._make_room(), file=profiler.__file__)

    def finish(self) -> None:
        """At exit: say when nothing could be measured."""
        if self._done or self._told:
            return
        with self._lock:
            if self._profiled is not None:
                self._tell()
                return
            self._discard()
        self._say(self._why_nothing())

    def _why_nothing(self) -> str:
        rounds = _WARM_ROUNDS + _ROUNDS
        most = max(self._calls.values(), default=0)
        if most < rounds:
            return f"needs {rounds} steady calls, saw {most} (calls of one compiled function while nothing else compiled)"
        if self._attempts >= _MAX_ATTEMPTS:
            return f"each of {self._attempts} attempts was ended by a compilation or by a profiler of the program"
        return "a profiler of the program was running"

    def _say(self, why: str) -> None:
        """No run time is no fault of the recording: what torch.compile did is recorded without it."""
        self._sink.artifact("dynadiag_problem", {"kind": "no_cost", "text": f"--cost: no run time: {why}"}, context=False)

    def _counted(self, compiled: Callable[..., Any]) -> Callable[..., Any]:
        """`compiled` with a count of its calls; a new compilation ends the steady state."""
        with self._lock:
            if self._profiled is not None:
                self._tell()
            self._done |= self._told  # what follows is no longer what was profiled
            self._calls.clear()
            self._discard()
        event = sys.modules["torch"]._C._profiler._RecordFunctionFast

        def counted(*args: Any) -> Any:
            with event(GRAPH):
                return compiled(*args)

        return functools.update_wrapper(counted, compiled, updated=())

    def _step(self, function: int) -> None:
        if self._done:
            return
        self._calls[function] += 1
        if self._profiled is not None or self._told:
            self._time(function)
            return
        if self._profile is None:
            if self._calls[function] > _WARM_ROUNDS and self._attempts < _MAX_ATTEMPTS:
                self._start(function)
            return
        starter, first = self._starter
        if function == starter and self._calls[function] >= first + _ROUNDS:
            self._stop()

    def _start(self, function: int) -> None:
        profiler = sys.modules["torch.autograd.profiler"]
        if sys.modules["torch"]._C._autograd._profiler_enabled():
            return
        device = _wait_for_device()
        profile = profiler.profile(use_cpu=True, use_kineto=True, use_device=device)
        profiler_c = sys.modules["torch"]._C._autograd
        self._starting = True
        profiler_c._prepare_profiler(profile.config(), profile.kineto_activities)
        profiler_c._enable_profiler(profile.config(), profile.kineto_activities)
        _announce(started=True)
        self._starting = False
        self._attempts += 1
        self._profile, self._starter = profile, (function, self._calls[function])

    def _stop(self) -> None:
        device = _wait_for_device()
        result = sys.modules["torch"]._C._autograd._disable_profiler()
        _announce(started=False)
        self._profile = None
        profiled = read_events(result.events())
        self._profiled, self._timed_from = profiled, time.perf_counter_ns()
        self._starter = self._starter[0], self._calls[self._starter[0]]
        if device is None or not profiled.works:
            self._tell()

    def _time(self, function: int) -> None:
        """The length of a call without a profiler: from as many calls as were profiled or as there are, and then from all that follow.

        The first calls after a compilation may take twice as long as later ones: each further time as many calls are timed as before.
        """
        starter, first = self._starter
        timed = self._calls[function] - first
        later = self._told and timed == self._next
        if function != starter or not (later or (not self._told and timed in _TIMED)):
            return
        _wait_for_device()
        now = time.perf_counter_ns()
        if not self._told:
            self._period_ns = (now - self._timed_from) / timed
            if timed == _ROUNDS:
                self._tell()
                self._timed_from, self._next = time.perf_counter_ns(), 2 * timed
            return
        self._period_ns = (now - self._timed_from) / (timed // 2)
        self._sink.artifact("dynadiag_period", {"period_ns": self._period_ns, "calls": timed // 2}, context=False)
        self._timed_from, self._next = time.perf_counter_ns(), 2 * timed
        self._done = timed >= _MOST_TIMED

    def _tell(self) -> None:
        """Write what was profiled, with the length of a call without a profiler where one was timed."""
        if self._profiled is None:
            return
        profiled, self._profiled, self._told = self._profiled, None, True
        self._done = self._period_ns is None or not profiled.works
        starter, first = self._starter
        timed = max(0, self._calls[starter] - first)
        name = next((name for number, name in self._functions.values() if number == starter), "?")
        how = f"torch.profiler, {_ROUNDS} steady calls of {name}; nested regions and lookups subtracted"
        found = {"how": how, "regions": summarise(profiled), "period_ns": self._period_ns, "rounds": _ROUNDS}
        self._sink.artifact("dynadiag_cost", found, context=False)
        needed = _WARM_ROUNDS + _ROUNDS + _TIMED[0]
        untimed = None if self._period_ns else f"it needs {needed} steady calls, saw {_WARM_ROUNDS + _ROUNDS + timed}"
        events = timeline(profiled) | {"how": how, "starter": starter, "period_ns": self._period_ns, "untimed": untimed}
        self._sink.artifact("dynadiag_timeline", events, context=False)

    def _discard(self) -> None:
        self._close()
        if self._profile is not None:
            self._profile = None
            sys.modules["torch"]._C._autograd._disable_profiler()
            _announce(started=False)

    def _make_room(self) -> None:
        """The program starts a profiler of its own, which would fail beside ours."""
        with self._lock:
            if not self._starting:
                self._done |= self._told
                self._calls.clear()
                self._discard()


@dataclass(frozen=True)
class _OpenCall:
    """A call that is being profiled: the frame of torch's wrapper, and the callback that this puts back at its end."""

    frame: FrameType
    prior: Any
    marker: Any
    thread: int

    def ends(self, frame: FrameType, callback: Any) -> bool:
        """Whether this wrapper puts its callback back."""
        return frame is self.frame and callback is self.prior

    def encloses(self, frame: FrameType | None) -> bool:
        """Whether it is a caller of this frame."""
        while frame is not None and frame is not self.frame:
            frame = frame.f_back
        return frame is not None


def _wait_for_device() -> str | None:
    """The device of the profile, when all that was asked of it is done: "cuda" where the program uses it.

    None while a CUDA graph is captured, which a synchronisation would end.
    """
    torch = sys.modules["torch"]
    if not torch.cuda.is_initialized() or torch.cuda.is_current_stream_capturing():
        return None
    torch.cuda.synchronize()
    return "cuda"


def _announce(*, started: bool) -> None:
    """Tell torch's Python side, which emits "Pregraph bytecode" events only then (`torch.autograd.profiler._run_on_profiler_start`)."""
    name = "_run_on_profiler_start" if started else "_run_on_profiler_stop"
    getattr(sys.modules["torch.autograd.profiler"], name)()
