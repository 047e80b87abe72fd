"""How much of a call runs compiled: what one warmed-up call of a compiled function dispatches outside graphs, and which graphs it runs."""

from __future__ import annotations

import functools
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FrameType, ModuleType
from typing import Any

from dynadiag.torch_compat.dynamo.switches import target_name
from dynadiag.torch_compat.trace import structured
from dynadiag.torch_compat.trace.hooks import Hooks, Sink, callback_switch, disguise
from dynadiag.torch_compat.trace.profile_events import (
    GLUE,
    GRAPH,
    count_dispatched,
    profiler_runs,
    profiler_starts,
    start_profiler,
    stop_profiler,
)

SETTER = "_maybe_set_eval_frame"
_MOST_FUNCTIONS = 64
_MOST_CALLS = 20
_LONGEST_S = 5.0  # a profile of some seconds is some hundred megabytes at most
_TIMED = 5
_GRAPH_NAME = "__compiled_fn_"
# What runs operators that are none of the program's work: a number that is an input of a graph becomes a tensor first (`PyCodegen`,
# `torch/_dynamo/codegen.py`), and the text of a tensor is made of its values (`torch/_tensor_str.py`, both 2.6 to 2.15).
_NO_WORK = (("torch", "_as_tensor_fullprec"), ("torch._tensor_str", "_str"))


@dataclass
class _Function:
    """One compiled function: how many of its calls were looked at, when the last began, and how long a call takes at most."""

    calls: int = 0
    began: float = float("-inf")
    longest_s: float = float("inf")
    counted: bool = False
    timed: list[tuple[float, float]] = field(default_factory=list)
    why_not: str | None = None


@dataclass
class _Call:
    """A call that is looked at: the frame of torch's wrapper around it, and the graphs that run in it now."""

    function: _Function
    callback: Any
    frame: FrameType
    number: int
    profiled: bool
    handled: BaseException | None
    compilations: int
    began: float
    prior: Any
    graphs: list[tuple[FrameType, Any, Any, float]] = field(default_factory=list)
    graph_s: float = 0.0
    thread: int = field(default_factory=threading.get_ident)


class WorkMeter:
    """Looks at the first calls of each compiled function that no other compiled function calls, and then at none any more.

    Which call begins and ends is seen where Dynamo's callback is switched on and off (`eval_frame.py`). A call in which something compiles
    is given up before it compiles, and so is one in which the program starts a profiler. At most 20 calls of at most 64 functions.
    """

    def __init__(self, sink: Sink, *, timed: bool) -> None:
        self.call: _Call | None = None
        self.finished: set[Any] = set()
        self._sink, self._rounds = sink, _TIMED if timed else 0
        self._functions: dict[Any, _Function] = {}
        self._operators: dict[str, int] = {}
        self._compilations = 0
        self._undo: list[Callable[[], None]] = []
        self._eval_frame: ModuleType | None = None
        self._switch = callback_switch()
        self._told = self._watched = False

    def watch(self, eval_frame: ModuleType, hooks: Hooks) -> None:
        """From now on; nothing stays in `eval_frame` between the calls that are looked at."""

        def put_in() -> None:
            getattr(eval_frame, SETTER)
            if not self._watched and hasattr(os, "register_at_fork"):
                os.register_at_fork(after_in_child=self._stop)
            self._eval_frame, self._watched, self._told = eval_frame, True, False
            self.reset()  # what an earlier recording of this process has seen is in another log
            hooks.on_undo(self._stop)

        hooks.install("compiled_work", put_in)

    def graph(self, operators: int) -> None:
        """A graph of so many operators goes to its back end."""
        self._operators[structured.region_name(structured.current_compile_ids())] = operators

    def compiles(self) -> None:
        """Something begins to compile: the call that is looked at is not one without a compilation."""
        self._compilations += 1
        if self.call is not None and self.call.thread == threading.get_ident():
            self._leave()

    def reset(self) -> None:
        """Dynamo forgets all it compiled, and its ids begin again."""
        self._leave()
        self._functions.clear()
        self.finished.clear()
        self._operators.clear()

    def why_not(self) -> str | None:
        """Why no call could be counted; None where one was."""
        if self._told:
            return None
        reasons = [function.why_not for function in self._functions.values() if function.why_not]
        if reasons:
            return reasons[0]
        return "no compiled function was called a second time, or each such call compiled something" if self._functions else None

    # -- torch calls

    def make_room(self, why: str) -> None:
        """Stop the profile of the call that runs, if there is one in this thread: a later one is counted, or `why` no call was."""
        if self.call is not None and self.call.profiled and self.call.thread == threading.get_ident():
            self.call.function.why_not = why
            self._leave()

    def begins(self, callback: Any, frame: FrameType) -> None:
        """A call of something compiled begins; `frame` is that of torch's wrapper."""
        try:
            if self._eval_frame is not None and frame.f_code.co_name != "__enter__":
                self._begin(callback, frame)
        except Exception as error:  # noqa: BLE001 - border: our hooks in the user's process
            self._fail(callback, error)

    def aside(self, frame: FrameType) -> None:
        """A call with Dynamo off begins during the call that is looked at: perhaps of a graph."""
        call = self.call
        try:
            if call is not None and call.thread == threading.get_ident() and _runs_graph(frame):
                marker = None
                if call.profiled:
                    marker = sys.modules["torch"]._C._profiler._RecordFunctionFast(GRAPH)
                    marker.__enter__()
                call.graphs.append((frame, marker, frame.f_locals["prior"], time.perf_counter()))
        except Exception as error:  # noqa: BLE001 - border: our hooks in the user's process
            self._fail(None if call is None else call.callback, error)

    def _begin(self, callback: Any, frame: FrameType) -> None:
        call = self.call
        if call is not None and call.thread != threading.get_ident():
            return
        if encloses(frame):
            return
        if call is not None:  # its end was not seen
            self._leave()
        function = self._functions.setdefault(callback, _Function())
        if "prior" not in frame.f_locals:  # 2.6 asks for the stance before it notes the callback that the call puts back
            function.why_not = "this version of torch does not show where a call ends"
            self.finished.add(callback)
            return
        if profiler_runs():
            function.why_not = "a profiler was running"
            return
        now = time.perf_counter()
        function.calls, function.began, function.longest_s = function.calls + 1, now, min(function.longest_s, now - function.began)
        if function.calls > _MOST_CALLS or len(self._functions) > _MOST_FUNCTIONS:
            self.finished.add(callback)
            return
        wanted = function.calls > 1 and not function.counted
        if wanted and function.longest_s > _LONGEST_S:
            function.why_not = f"no later call was known beforehand to take at most {_LONGEST_S:.0f} s"
        self._enter(
            _Call(
                function=function,
                callback=callback,
                frame=frame,
                number=function.calls,
                profiled=wanted and function.longest_s <= _LONGEST_S,
                handled=sys.exc_info()[1],
                compilations=self._compilations,
                began=now,
                prior=frame.f_locals["prior"],
            )
        )

    def _enter(self, call: _Call) -> None:
        eval_frame = self._eval_frame
        original = getattr(eval_frame, SETTER)

        def dynadiag_set(value: Any) -> Any:
            self._set(sys._getframe(1), value)
            return original(value)

        self._replace(eval_frame, SETTER, disguise(dynadiag_set, eval_frame.__file__ if eval_frame else None))
        self.call = call
        if call.profiled:
            self._mark_glue()
            for module, name, start in profiler_starts(self._leave):
                self._replace(module, name, start)
            start_profiler()

    def _mark_glue(self) -> None:
        """Have what `_NO_WORK` names told apart in the profile."""
        marker, thread = sys.modules["torch"]._C._profiler._RecordFunctionFast, threading.get_ident()
        for name, function in _NO_WORK:
            module = sys.modules.get(name)
            if module is not None and hasattr(module, function):
                original = getattr(module, function)
                self._replace(module, function, functools.wraps(original)(disguise(_marking(original, marker, thread), module.__file__)))

    def _set(self, frame: FrameType, value: Any) -> None:
        """Dynamo's callback is being set, by the wrapper of the call or of a graph: at its beginning or at its end."""
        call = self.call
        if call is None or call.thread != threading.get_ident():
            return
        prior = self._switch(None)
        try:
            if frame is call.frame and value is call.prior:
                self._ended(call)
            elif call.graphs and frame is call.graphs[-1][0] and value is call.graphs[-1][2]:
                _, marker, _, began = call.graphs.pop()
                call.graph_s += time.perf_counter() - began
                if marker is not None:
                    marker.__exit__(None, None, None)
        except Exception as error:  # noqa: BLE001 - border: our hooks in the user's process
            self._fail(call.callback, error)
        finally:
            self._switch(prior)

    def _ended(self, call: _Call) -> None:
        function, took = call.function, time.perf_counter() - call.began
        quiet = call.compilations == self._compilations
        events = self._leave()
        if not quiet or sys.exc_info()[1] is not call.handled:
            return
        function.longest_s = took
        if events is not None:
            function.counted, function.why_not = True, None
            self._tell(call, events)
        elif function.counted and not profiler_runs():
            function.timed.append((call.graph_s, took))
        if function.counted and len(function.timed) >= self._rounds:
            self.finished.add(call.callback)
            if self._rounds:
                self._tell_time(function)

    def _leave(self) -> Any:
        """Take everything out again; gives the events of a profile."""
        call, self.call = self.call, None
        while self._undo:
            self._undo.pop()()
        if call is None or not call.profiled or call.thread != threading.get_ident() or not profiler_runs():
            return None
        return stop_profiler()

    def _stop(self) -> None:
        """The recording ends, or this is a new process: nothing is looked at any more."""
        self._leave()
        self._eval_frame = None

    def _fail(self, callback: Any, error: BaseException) -> None:
        if callback is not None:
            self.finished.add(callback)
            if callback in self._functions:
                self._functions[callback].why_not = f"dynadiag failed: {type(error).__name__}: {error}"
        self._sink.failed("compiled_work", error)
        self._leave()

    def _replace(self, owner: Any, name: str, new: Any) -> None:
        old = getattr(owner, name)
        setattr(owner, name, new)
        self._undo.append(lambda: setattr(owner, name, old))

    # -- records

    def _tell(self, call: _Call, events: Any) -> None:
        found = count_dispatched(events)
        if any(name not in self._operators for name in found.graphs):
            call.function.why_not = "a graph ran whose compilation was not recorded"
            return
        self._told = True
        record = {
            "function": compiled_name(call.frame.f_locals.get("fn")),
            "call": call.number,
            "outside": found.outside,
            "regions": dict(found.regions),
            "graphs": {name: [count, self._operators[name]] for name, count in found.graphs.items()},
        }
        self._sink.artifact("dynadiag_compiled_work", record, context=False)

    def _tell_time(self, function: _Function) -> None:
        """The host's time says nothing of a device's."""
        if not sys.modules["torch"].cuda.is_initialized():
            inside, whole = (sum(pair[at] for pair in function.timed) for at in (0, 1))
            self._sink.artifact("dynadiag_compiled_time", {"calls": len(function.timed), "graph_s": inside, "call_s": whole}, context=False)


def _marking(original: Callable[..., Any], marker: Any, thread: int) -> Callable[..., Any]:
    def dynadiag_marked(*args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() != thread:
            return original(*args, **kwargs)
        with marker(GLUE):
            return original(*args, **kwargs)

    return dynadiag_marked


def compiled_name(function: Any) -> str:
    """What was compiled; of a module, which torch calls by a method or a function of its own, the class."""
    if getattr(getattr(function, "__code__", None), "co_filename", None) == sys.modules["torch._dynamo.external_utils"].__file__:
        function = getattr(function, "__wrapped__", function)  # `wrap_inline`, 2.6 to 2.15
    owner = getattr(function, "__self__", None)
    return type(owner).__qualname__ if isinstance(owner, sys.modules["torch"].nn.Module) else target_name(function)


def encloses(frame: FrameType) -> bool:
    """Whether another compiled function calls the one whose wrapper has this frame: all wrappers have the same code."""
    outer = frame.f_back
    while outer is not None:
        if outer.f_code is frame.f_code:
            return True
        outer = outer.f_back
    return False


def _runs_graph(frame: FrameType) -> bool:
    """Whether a wrapper that switches Dynamo off runs a graph: code that Dynamo made calls it by a name of Dynamo's choice.

    From `OutputGraph.compile_and_call_fx_graph` (`torch/_dynamo/output_graph.py`, 2.6 to 2.15). What 2.15 puts in place of a graph that
    does nothing, which no back end gets, is none.
    """
    made = frame.f_back
    if made is None or "prior" not in frame.f_locals:
        return False
    function = frame.f_locals.get("fn")
    if function is getattr(sys.modules["torch._dynamo.output_graph"], "noop_graph_call", frame):
        return False
    wrappers = (made.f_globals.get(name) for name in made.f_code.co_names if name.startswith(_GRAPH_NAME))
    return any(wrapper is not None and getattr(wrapper, "_torchdynamo_orig_callable", None) is function for wrapper in wrappers)
