"""Run time of compiled regions: a few steady calls under torch's own profiler, started and stopped from inside the program."""

from __future__ import annotations

import functools
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from types import ModuleType
from typing import Any

from dynadiag.torch_compat.dynamo.user_compiler import watch_compiler
from dynadiag.torch_compat.trace import context
from dynadiag.torch_compat.trace.hooks import Hooks, Sink, callback_switch
from dynadiag.torch_compat.trace.profile_events import GRAPH, Profiled, read_events, summarise

_WARM_ROUNDS = 3
_ROUNDS = 20
_MAX_ATTEMPTS = 5
# After so many calls without a profiler the device is waited for, and their length is known; a program may end before the last of them.
_TIMED = (7, 13, _ROUNDS)


class CostMeter:
    """Profiles once the program is steady: a region was called three times and nothing compiled meanwhile; then for 20 more of its calls.

    A compilation meanwhile, or a profiler that the program starts itself, discards what was measured, and the wait begins again (at most
    five times). With CUDA the device is in the profile and is waited for before and after it; the next 20 (7 at least) are timed without.
    """

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._lock = threading.RLock()
        self._starting = False
        self._calls: Counter[str] = Counter()
        self._profile: Any = None
        self._starter: tuple[str, int] = ("", 0)
        self._attempts = 0
        self._done = False
        self._switch = callback_switch()
        self._profiled: tuple[Profiled, int] | None = None
        self._period_ns: float | None = None

    def count_calls_of(self, output_graph: ModuleType, hooks: Hooks) -> None:
        """Count calls of each compiled graph; nothing is counted for code that torch wants to serialise."""
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
        if self._done:
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
            return f"needs {rounds} steady calls, saw {most} (calls of one compiled region while nothing else compiled)"
        if self._attempts >= _MAX_ATTEMPTS:
            return f"each of {self._attempts} attempts was ended by a compilation or by a profiler of the program"
        return "a profiler of the program was running"

    def _say(self, why: str) -> None:
        """No run time is no fault of the recording: what torch.compile did is recorded without it."""
        self._sink.artifact("dynadiag_problem", {"kind": "no_cost", "text": f"--cost: no run time: {why}"}, context=False)

    def _counted(self, compiled: Callable[..., Any]) -> Callable[..., Any]:
        """`compiled` with a count of its calls; a new compilation ends the steady state."""
        key = context.region_name(context.current_compile_ids())
        with self._lock:
            if self._profiled is not None:
                self._tell()
            self._calls.clear()
            self._discard()
        enter = self._enter
        event = sys.modules["torch"]._C._profiler._RecordFunctionFast

        def counted(*args: Any) -> Any:
            enter(key)
            with event(GRAPH):
                return compiled(*args)

        return functools.update_wrapper(counted, compiled, updated=())

    def _enter(self, key: str) -> None:
        """Before a call of a compiled graph; Dynamo's callback may be live here, and our own frames are none of its business."""
        if self._done:
            return
        prior = self._switch(None)
        try:
            with self._lock:
                self._step(key)
        except Exception as error:  # noqa: BLE001 - border: our profiling in the user's process
            self._done, self._profile = True, None
            self._say(f"the profiler failed: {type(error).__name__}: {error}")
        finally:
            self._switch(prior)

    def _step(self, key: str) -> None:
        self._calls[key] += 1
        if self._profiled is not None:
            self._time(key)
            return
        if self._profile is None:
            if self._calls[key] > _WARM_ROUNDS and self._attempts < _MAX_ATTEMPTS:
                self._start(key)
            return
        region, first = self._starter
        if key == region and self._calls[key] >= first + _ROUNDS:
            self._stop()

    def _start(self, key: str) -> None:
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
        self._profile, self._starter = profile, (key, self._calls[key])

    def _stop(self) -> None:
        device = _wait_for_device()
        result = sys.modules["torch"]._C._autograd._disable_profiler()
        _announce(started=False)
        self._profile = None
        profiled = read_events(result.events())
        self._profiled = profiled, time.perf_counter_ns()
        self._starter = self._starter[0], self._calls[self._starter[0]]
        if device is None or not profiled.works:
            self._tell()

    def _time(self, key: str) -> None:
        """The length of a call without a profiler, from as many calls as were profiled or as there are."""
        region, first = self._starter
        timed = self._calls[key] - first
        if self._profiled is None or key != region or timed not in _TIMED:
            return
        _wait_for_device()
        self._period_ns = (time.perf_counter_ns() - self._profiled[1]) / timed
        if timed == _ROUNDS:
            self._tell()

    def _tell(self) -> None:
        """Write what was profiled, with the length of a call without a profiler where one was timed."""
        if self._profiled is None:
            return
        profiled, self._profiled, self._done = self._profiled[0], None, True
        region, first = self._starter
        period_ns = self._period_ns
        needed = _WARM_ROUNDS + _ROUNDS + _TIMED[0]
        timed = max(0, self._calls[region] - first)
        untimed = f"it needs {needed} steady calls, saw {_WARM_ROUNDS + _ROUNDS + timed}"
        regions = summarise(profiled, region, period_ns, untimed)
        how = f"torch.profiler, {_ROUNDS} steady calls of region {self._starter[0]}; nested regions and lookups subtracted"
        self._sink.artifact("dynadiag_cost", {"how": how, "regions": regions, "period_ns": period_ns, "rounds": _ROUNDS}, context=False)

    def _discard(self) -> None:
        if self._profile is not None:
            self._profile = None
            sys.modules["torch"]._C._autograd._disable_profiler()
            _announce(started=False)

    def _make_room(self) -> None:
        """The program starts a profiler of its own, which would fail beside ours."""
        with self._lock:
            if not self._starting:
                self._calls.clear()
                self._discard()


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
