"""What runs eagerly although its module is compiled: methods and submodules that a program calls through what `torch.compile` gave.

`OptimizedModule` hands on every attribute but `forward` from the module as it was, so what they run is not compiled.
"""

from __future__ import annotations

import dis
import functools
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import CodeType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

from dynadiag.torch_compat.trace import stacks
from dynadiag.torch_compat.trace.hooks import Hooks, Sink, callback_switch, disguise
from dynadiag.torch_compat.trace.profile_events import count_dispatched, profiler_runs, profiler_starts, start_profiler, stop_profiler

_CLASS, _GET = "OptimizedModule", "__getattr__"
_MOST_PLACES = 256
_MOST_MEASURED = 3
# How long the call before took at most: a profile of some seconds is some hundred megabytes, one with a stack for each operator much more.
_LONGEST_S, _LONGEST_WITH_STACK_S = 5.0, 0.5


@dataclass
class _Place:
    """An instruction that takes such an attribute in order to call it: how often it ran, and what was measured of it."""

    code: CodeType
    call: DirectCall
    name: str
    callee: CodeType
    kind: str
    number: int
    stack: list[dict[str, Any]]
    calls: int = 0
    measured: int = 0
    took_s: float | None = None
    operators: int | None = None
    compiled_inside: bool = False
    looked_at: int = 0

    @property
    def finished(self) -> bool:
        return self.operators is not None or self.compiled_inside or self.measured >= _MOST_MEASURED


@dataclass
class _Running:
    """The call that is measured: it ends when `called`, which only its caller's stack holds, is freed."""

    place: _Place
    begun: int
    depth: int | None
    ends: Any = None
    began: float = 0.0
    thread: int = field(default_factory=threading.get_ident)


class MethodMeter:
    """Times the first call of each, and counts the operators of a later one at each place, where the attribute is certainly only called.

    Nothing of ours is called in between: the caller gets a `functools.partial` of what it asked for, which has no frame of Python's. Calls
    in which something compiled runs are left out, since their operators may be compiled.
    """

    def __init__(self, sink: Sink, begun: Callable[[], int | None], inside: Callable[[], bool]) -> None:
        """`begun`: how many compiled calls have begun; `inside`: whether one is looked at now."""
        self._sink, self._begun, self._inside = sink, begun, inside
        self._places: dict[tuple[int, int], _Place | None] = {}
        self._took: dict[str, float] = {}
        self._kept: list[CodeType] = []  # so that no other code gets the number of one of them
        self._running: _Running | None = None
        self._undo: list[Callable[[], None]] = []
        self._on = self._watched = False
        self._switch = callback_switch()

    def watch(self, eval_frame: ModuleType, hooks: Hooks) -> None:
        """From now on; `eval_frame` is `torch._dynamo.eval_frame`."""
        hooks.install("eager_methods", lambda: self._put_in(eval_frame, hooks))

    def found(self) -> Iterator[dict[str, Any]]:
        """What is known of each place whose operators were counted, with the number of its calls until now."""
        return (self._record(place) for place in self._places.values() if place is not None and place.operators is not None)

    def _put_in(self, eval_frame: ModuleType, hooks: Hooks) -> None:
        owner = getattr(eval_frame, _CLASS)
        original = vars(owner)[_GET]
        callback = sys.modules["torch._C"]._dynamo.eval_frame.get_eval_frame_callback
        module = sys.modules["torch"].nn.Module

        def dynadiag_attribute(self_: Any, name: str) -> Any:
            value = original(self_, name)
            if (type(value) is MethodType or isinstance(value, module)) and self._on and callback() is None:
                return self._taken(self_, name, value, sys._getframe(1))
            return value

        if not self._watched and hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._stop)
        self._on = self._watched = True
        self._places.clear()
        self._took.clear()
        hooks.on_undo(self._stop)
        hooks.replace(owner, _GET, functools.wraps(original)(disguise(dynadiag_attribute, eval_frame.__file__)))

    def _taken(self, owner: Any, name: str, value: Any, frame: FrameType) -> Any:
        try:
            key = id(frame.f_code), frame.f_lasti
            if key not in self._places and len(self._places) < _MOST_PLACES:
                self._places[key] = self._find_place(owner, name, value, frame)
            place = self._places.get(key)
            if place is None or _callee(value) is not place.callee:
                return value
            place.calls += 1
            if place.finished or self._running is not None or self._inside():
                return value
            return self._begin(place, value, frame)
        except Exception as error:  # noqa: BLE001 - border: our hooks in the user's process
            self._fail(error)
            return value

    def _find_place(self, owner: Any, name: str, value: Any, frame: FrameType) -> _Place | None:
        self._kept.append(frame.f_code)
        callee, call = _callee(value), direct_call(frame.f_code, frame.f_lasti)
        if callee is None or call is None:
            return None
        return _Place(
            code=frame.f_code,
            call=call,
            name=f"{type(owner._orig_mod).__qualname__}.{name}",
            callee=callee,
            kind="method" if type(value) is MethodType else "module",
            number=len(self._places),
            stack=[record for record in stacks.calling_stack() if not record["function"].endswith(".dynadiag_attribute")],
        )

    def _begin(self, place: _Place, value: Any, frame: FrameType) -> Any:
        begun = self._begun()
        place.took_s = self._took.get(place.name) if place.took_s is None else place.took_s
        with_stack = not place.call.plain
        profiled = place.took_s is not None and place.took_s <= (_LONGEST_WITH_STACK_S if with_stack else _LONGEST_S)
        if begun is None or profiler_runs():
            return value
        if place.took_s is not None and not profiled:
            place.measured += 1
            return value
        called = functools.partial(value)
        running = _Running(place=place, begun=begun, depth=_depth(frame) if with_stack else None)
        running.ends = weakref.ref(called, disguise(lambda _: self._ended(running), sys.modules["torch._dynamo.eval_frame"].__file__))
        self._running = running
        if profiled:
            place.looked_at = place.calls
            for module, name, start in profiler_starts(self._leave):
                self._replace(module, name, start)
            start_profiler(with_stack=with_stack)
        running.began = time.perf_counter()
        return called

    def _ended(self, running: _Running) -> None:
        took = time.perf_counter() - running.began
        prior = self._switch(None)
        try:
            if running is not self._running or running.thread != threading.get_ident():
                return
            profiled, place = bool(self._undo), running.place
            events = self._leave()
            place.measured += 1
            if self._begun() != running.begun:
                place.compiled_inside = True
            elif profiled and events is not None:
                place.operators = count_dispatched(events, _below(running) if running.depth is not None else None).outside
                self._sink.artifact("dynadiag_eager_method", self._record(place), context=False)
            elif not profiled:
                place.took_s = self._took[place.name] = took
        except Exception as error:  # noqa: BLE001 - border: our hooks in the user's process
            self._fail(error)
        finally:
            self._switch(prior)

    def _leave(self) -> Any:
        """Take everything out again; gives the events of a profile."""
        running, self._running = self._running, None
        profiled = bool(self._undo)
        while self._undo:
            self._undo.pop()()
        if running is None or not profiled or running.thread != threading.get_ident() or not profiler_runs():
            return None
        return stop_profiler()

    def _stop(self) -> None:
        """The recording ends, or this is a new process."""
        self._leave()
        self._on = False

    def _fail(self, error: BaseException) -> None:
        self._sink.failed("eager_methods", error)
        self._stop()

    def _replace(self, owner: Any, name: str, new: Any) -> None:
        old = getattr(owner, name)
        setattr(owner, name, new)
        self._undo.append(lambda: setattr(owner, name, old))

    def _record(self, place: _Place) -> dict[str, Any]:
        return {
            "number": place.number,
            "function": place.name,
            "kind": place.kind,
            "call": place.looked_at,
            "operators": place.operators,
            "calls": place.calls,
            "took_s": place.took_s,
            "stack": place.stack,
        }


def _callee(value: Any) -> CodeType | None:
    """The code that a call of the value begins with; None for what is compiled, excluded from compilation on purpose, or torch's own."""
    module = sys.modules["torch"].nn.Module
    if isinstance(value, module):
        compiled = getattr(value, "_compiled_call_impl", None) is not None or type(value).__name__ == _CLASS
        return None if compiled else getattr(type(value).__call__, "__code__", None)
    function = value.__func__
    if not isinstance(value.__self__, module) or not isinstance(function, FunctionType):
        return None
    attributes = vars(function)
    if "_torchdynamo_orig_callable" in attributes or "_torchdynamo_disable" in attributes:
        return None
    return None if str(function.__module__).partition(".")[0] == "torch" else function.__code__


def _depth(frame: FrameType | None) -> int:
    """How many frames there are from this one outwards."""
    depth = 0
    while frame is not None:
        frame, depth = frame.f_back, depth + 1
    return depth


def _below(running: _Running) -> Callable[[Any], bool]:
    """Whether an operator ran in the call itself, by its stack: arguments are computed between the look-up of a method and its call."""
    code, depth = running.place.callee, running.depth or 0
    begins, ends = f"{code.co_filename}(", f"): {code.co_name}"

    def is_below(event: Any) -> bool:
        frames = event.stack()
        at = len(frames) - depth - 1
        return at >= 0 and frames[at].startswith(begins) and frames[at].endswith(ends)

    return is_below


# Whether an attribute that code takes is only called there: by the code's instructions, of Python 3.11 to 3.14.

_LOADS_OF_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD")
_STILL = frozenset(("CACHE", "EXTENDED_ARG", "KW_NAMES", "NOP", "NOT_TAKEN", "PRECALL", "PUSH_NULL", "RESUME"))
# How many values an instruction takes from the stack, where it leaves at most one; of the others `stack_effect` tells it.
_TAKES = {"BINARY_OP": 2, "BINARY_SUBSCR": 2, "LIST_TO_TUPLE": 1, "CALL_INTRINSIC_1": 1, **dict.fromkeys(_LOADS_OF_ATTRIBUTES, 1)}
_CALLS = ("CALL", "CALL_KW", "CALL_FUNCTION_EX")
_INTO_CONTAINER = frozenset(("LIST_APPEND", "LIST_EXTEND", "SET_ADD", "SET_UPDATE", "DICT_MERGE", "DICT_UPDATE"))
_RUNS_CODE = frozenset(("LOAD_ATTR", "BINARY_OP", "BINARY_SUBSCR", *_CALLS, *_INTO_CONTAINER))


class DirectCall(NamedTuple):
    """A call `value.name(...)`: nothing else can see the attribute. `plain`: none of its arguments calls or computes anything."""

    plain: bool


def direct_call(code: CodeType, offset: int) -> DirectCall | None:
    """The call that the attribute loaded at this instruction is made for, or None where it may be kept or passed on.

    The compiler loads a method in a way of its own only where a call follows (`LOAD_METHOD`; from 3.12 on a bit of `LOAD_ATTR`). With `*`
    or `**` among the arguments it does not, so the instructions up to the call are followed there.
    """
    after = [instruction for instruction in dis.get_instructions(code) if instruction.offset >= offset]
    if not after or after[0].opname not in _LOADS_OF_ATTRIBUTES:
        return None
    as_method = bool((after[0].arg or 0) & 1) if sys.version_info >= (3, 12) else after[0].opname == "LOAD_METHOD"
    depth, plain = 2 if as_method else 1, True
    below = 0 if as_method or sys.version_info >= (3, 13) else 1  # the NULL that says that a call follows lies below what is called
    for pair in after[1:]:
        taken = _taken(pair)
        if taken is None or taken >= depth:  # it takes the attribute itself
            calls = pair.opname in _CALLS and taken == depth + below
            return DirectCall(plain and calls) if as_method or calls else None
        depth += dis.stack_effect(pair.opcode, pair.arg, jump=False) if pair.opcode >= dis.HAVE_ARGUMENT else dis.stack_effect(pair.opcode)
        plain = plain and pair.opname not in _RUNS_CODE
    return None


def _taken(pair: dis.Instruction) -> int | None:
    """How many values it takes; None for an instruction that is not known to leave those below alone."""
    name, arg = pair.opname, pair.arg or 0
    if name in _TAKES:
        return _TAKES[name]
    if name in _STILL or name.startswith("LOAD_"):
        return 0
    if name.startswith("BUILD_") or name in _CALLS:
        return 1 - dis.stack_effect(pair.opcode, arg)
    return 1 if name in _INTO_CONTAINER else None
