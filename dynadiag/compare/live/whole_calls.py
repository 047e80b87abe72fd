"""`explain --parity` in the user's process: whole calls of compiled callables, each compared with the original function in eager.

Eager runs in a copy of the process that is made before the call; the compiled call is the program's own, and what it left is read in
another copy. So the program's state, random numbers and output stay as they are. A `dynadiag_whole_call` record says what was found.
"""

from __future__ import annotations

import functools
import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from dynadiag.capture.compiled_calls import After, CompiledCallable, CompiledCalls
from dynadiag.capture.process_copy import copy_process, why_no_copy
from dynadiag.capture.reach import State, find_state
from dynadiag.compare.aliasing import bytes_of
from dynadiag.compare.entries import Entries, OtherRuns, by_name, compare_entries
from dynadiag.compare.live.call_server import CallServer, CallToMake, RunKind, other_runs
from dynadiag.compare.live.regions import LiveOptions
from dynadiag.compare.live.seen_call import Before, note_call
from dynadiag.compare.live.situation import Situation, changes_between, full_deques, situation_of, writing_line
from dynadiag.dotted_names import lies_in
from dynadiag.torch_compat.dispatch.live_call import aside, is_no_error, why_not_now
from dynadiag.torch_compat.trace.hooks import Hooks, Sink, callback_switch

_MOST_DIFFERENCES = 20
_MORE_SITUATIONS = 8
_MORE_CALLS = 64
_SHARE = 0.15
"""Further calls are compared, and looked at, as long as that takes no more than this share of the time."""
_MEMORY_FACTOR = 3
_JUDGE_S = 300.0
_MOST_EXPLAINED = 1
"""Differing calls of a callable for which it is also asked whether it is right when compiled anew, and with the back end `eager`."""
_TEXT = 300


@dataclass
class _Callee:
    """What is known of one compiled callable."""

    situations: set[frozenset[tuple[tuple[str, str], str]]] = field(default_factory=set)
    compiled_in: Situation = field(default_factory=dict)
    explained: int = 0
    told: set[str] = field(default_factory=set)
    looked_at: int = 0


class WholeCalls:
    """Compares the first calls of each compiled callable, those that find another situation, and more as long as that is cheap."""

    def __init__(
        self,
        sink: Sink,
        options: LiveOptions,
        graphs_begun: Callable[[], int],
        quiet: Callable[[], None],
        as_uncompiled: Callable[[], None],
    ) -> None:
        self._sink, self._options, self._graphs_begun = sink, options, graphs_begun
        self._calls = CompiledCalls(self._before, eager=False)
        self._quiet, self._as_uncompiled = quiet, as_uncompiled
        self._callees: dict[int, _Callee] = {}
        self._spent_s = 0.0
        self._began = time.monotonic()
        self.current: tuple[int, int] | None = None
        """The callable and the number of the call that is being compared now."""

    def watch(self, hooks: Hooks) -> None:
        """Watch what is compiled from now on."""
        own = torch.compile
        self._calls.install()
        ours = torch.compile

        def restore() -> None:
            self._calls.stop()
            if torch.compile is ours:
                torch.compile = own

        hooks.on_undo(restore)

    def _before(self, callee: CompiledCallable, number: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> After | None:
        prior = callback_switch()(None)
        began = time.monotonic()
        try:
            return self._begin(callee, number, args, kwargs)
        except Exception as error:  # noqa: BLE001 - border: our hooks in the user's process
            self._sink.failed("whole calls", error)
            return None
        finally:
            self._spent_s += time.monotonic() - began
            callback_switch()(prior)

    def _cheap(self) -> bool:
        return self._spent_s < _SHARE * (time.monotonic() - self._began)

    def _begin(self, callee: CompiledCallable, number: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> After | None:
        known = self._callees.setdefault(callee.number, _Callee())
        if number > self._options.calls and not self._cheap():
            return None
        if (why := why_no_copy()) is not None:
            self._not_compared(callee, number, why)
            return None
        with aside():
            state = find_state(callee.original, args, kwargs)
            situation = situation_of(state)
            why = self._why_not(state)
        if why is not None:
            self._not_compared(callee, number, why)
            return None
        key = frozenset(situation.items())
        new = key not in known.situations and len(known.situations) < _MORE_SITUATIONS
        known.situations.add(key)
        if not (number <= self._options.calls or new or number <= _MORE_CALLS):
            return None
        return self._compare(callee, number, args, kwargs, state, situation)

    def _why_not(self, state: State) -> str | None:
        tensors = [held.tensor for held in state.held.values()]
        if torch.compiler.is_compiling():
            return "it is being traced"
        size = bytes_of(tensors)
        if size * _MEMORY_FACTOR > self._options.cap_bytes:
            return f"copies of what it reaches need {size * _MEMORY_FACTOR} bytes, the limit is {self._options.cap_bytes}"
        return why_not_now(tensors)

    def _compare(
        self, callee: CompiledCallable, number: int, args: tuple[Any, ...], kwargs: dict[str, Any], state: State, situation: Situation
    ) -> After:
        before, deques = Before.of(state), full_deques(state)
        compile_ = functools.partial(_compile, self._calls, callee)
        call = CallToMake(callee.original, args, kwargs, compile_, self._in_copy, self._as_uncompiled, self._options.cap_bytes)
        server = CallServer(call, before)
        begun = self._graphs_begun()
        self.current = callee.number, number

        def after(result: Any, error: BaseException | None) -> None:
            prior = callback_switch()(None)
            began = time.monotonic()
            self.current = None
            try:
                compiled_now = self._graphs_begun() != begun
                known = self._callees[callee.number]
                if compiled_now:
                    known.compiled_in = situation
                changes = changes_between(known.compiled_in, situation)
                if (why := _no_answer(error)) is not None:
                    self._not_compared(callee, number, why)
                else:
                    judging = functools.partial(self._judge, server, call, before, result, error, explain=known.explained < _MOST_EXPLAINED)
                    copy = copy_process(judging)
                    said = copy.wait(_JUDGE_S, (server.copy,))
                    if said is None:
                        self._sink.failed("whole calls", RuntimeError(copy.why_not))
                        said = json.dumps({"verdict": "not_compared", "why": "dynadiag failed in a copy of the process"}).encode()
                    changes = [change | {"place": writing_line(change)} for change in changes[:_MOST_DIFFERENCES]]
                    found = {"changes": changes, "full_deques": deques, "compiled_now": compiled_now}
                    self._tell(callee, number, json.loads(said), found)
            except Exception as ours:  # noqa: BLE001 - border: our hooks in the user's process
                self._sink.failed("whole calls", ours)
            finally:
                server.end()
                self._spent_s += time.monotonic() - began
                callback_switch()(prior)

        return after

    def _in_copy(self) -> None:
        """In a copy of the process: nothing is watched or recorded there."""
        self._calls.stop()
        self._quiet()

    def _judge(
        self,
        server: CallServer,
        call: CallToMake,
        before: Before,
        result: Any,
        error: BaseException | None,
        writing: int,
        *,
        explain: bool,
    ) -> None:
        """In a copy of the process, after the call: what it gave and left, compared with eager."""
        self._in_copy()

        def ended() -> Any:
            if error is not None:
                raise error
            return result

        compiled = by_name(note_call(call.original, call.args, call.kwargs, before, ended, call.cap_bytes))
        eager = server.answer()
        if eager is None:
            why = f"the original function could not be run in a copy of the process: {server.why_not[-_TEXT:]}"
            told: dict[str, Any] = {"verdict": "not_compared", "why": why}
        else:
            drew = eager.get(("random numbers", "torch")) != before.drawn
            told = _told(eager, compiled, server, drew=drew, explain=explain)
        os.write(writing, json.dumps(told).encode())

    # -- records

    def _tell(self, callee: CompiledCallable, number: int, told: dict[str, Any], found: Mapping[str, Any]) -> None:
        if told["verdict"] == "not_compared":
            self._not_compared(callee, number, told["why"])
            return
        if told["verdict"] == "different":
            self._callees[callee.number].explained += 1
            told |= found
        self._record(callee, number, told)

    def _not_compared(self, callee: CompiledCallable, number: int, why: str) -> None:
        """Said once for each reason of a callable."""
        known = self._callees[callee.number]
        if why not in known.told:
            known.told.add(why)
            self._record(callee, number, {"verdict": "not_compared", "why": why[:_TEXT]})

    def _record(self, callee: CompiledCallable, number: int, told: Mapping[str, Any]) -> None:
        code = getattr(_function_of(callee.original), "__code__", None)
        definition = {} if code is None else {"file": code.co_filename, "line": code.co_firstlineno}
        head = {"format": 1, "callee": callee.number, "name": callee.name, "call": number, **definition}
        self._sink.artifact("dynadiag_whole_call", {**head, **told}, compile_ids={})


def _compile(calls: CompiledCalls, callee: CompiledCallable, backend: str | None) -> Any:
    options = dict(callee.options)
    if backend is not None:
        options = {name: value for name, value in options.items() if name not in ("mode", "options")} | {"backend": backend}
    return calls.compile(callee.original, options)


def _function_of(original: Any) -> Any:
    """The function whose lines are the program's: a module's is its `forward`."""
    owner = getattr(original, "__self__", None)
    if isinstance(owner, torch.nn.Module) and original.__name__ == "_call_impl":
        original = owner
    return getattr(original.forward, "__func__", original.forward) if isinstance(original, torch.nn.Module) else original


def _no_answer(error: BaseException | None) -> str | None:
    """Why a call that raised is not compared: it was stopped, or could not be compiled, which other findings are about."""
    if error is None:
        return None
    if not isinstance(error, Exception) or is_no_error(error):
        return "the call was stopped"
    if lies_in(type(error).__module__, "torch._dynamo", "torch._inductor", "torch._functorch"):
        return f"the call could not be compiled ({type(error).__name__})"
    return None


def _told(eager: Entries, compiled: Entries, server: CallServer, *, drew: bool, explain: bool) -> dict[str, Any]:
    others = other_runs(server, drew=drew)
    found = compare_entries(eager, compiled, others)
    verdict = "different" if found.differences else "equal" if found.to_the_bit else "rounding"
    told: dict[str, Any] = {"verdict": verdict, "values": found.values, "random_values": found.random}
    told |= {"unsteady": found.unsteady, "values_not_compared": found.not_compared, "gradients": _gradients(eager)}
    if found.differences:
        told |= {
            "differences": [difference.to_json() for difference in found.differences[:_MOST_DIFFERENCES]],
            "more_differences": max(len(found.differences) - _MOST_DIFFERENCES, 0),
        }
        if explain:
            told["right_when"] = _right_when(eager, server, others)
    return told


def _gradients(eager: Entries) -> int:
    return sum(where == "backward" for where, _ in eager)


def _right_when(eager: Entries, server: CallServer, others: OtherRuns) -> dict[str, bool | None]:
    """Whether the call is right when it is compiled anew without caches; else whether it is with Dynamo alone."""
    found: dict[str, bool | None] = {}
    for name in ("", "eager"):
        run = server.run(RunKind(compiled=name))
        found[name or "anew"] = None if run is None else not compare_entries(eager, run, others).differences
        if found.get("anew"):
            break
    return found
