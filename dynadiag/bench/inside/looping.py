"""A whole script's steps: the iterations of one of its loops, timed while the script runs on.

One call is put in front of the loop's body. There the script waits for its turn, and runs as many iterations as it is asked for.
"""

from __future__ import annotations

import ast
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from dynadiag.bench.inside.arm import about_here
from dynadiag.bench.inside.loading import stay_alone
from dynadiag.bench.inside.probing import probe_steps
from dynadiag.bench.inside.timing import MIN_BLOCK_S, WARM_UP_S, StepTimer
from dynadiag.bench.verdict import MIN_ROUNDS
from dynadiag.capture.compiled_calls import CompiledCalls
from dynadiag.capture.reach import cuda_in_use
from dynadiag.capture.script import ScriptEndedError, run_script
from dynadiag.errors import UsageError
from dynadiag.torch_compat.dynamo.counters import compile_facts, keep_all_metrics
from dynadiag.torch_compat.trace.hooks import callback_switch

_MARK = "__dynadiag_step__"
_OPTIMIZER_STEPS, _CALLS = 2, 4

# A job is asked at each iteration's beginning; when it ends, what it returns is the answer.
Job = Iterator[None]


class _FoundError(BaseException):
    """Leaves the script once the loop is known; no `except Exception` of the script may stop it."""

    def __init__(self, line: int, what: str) -> None:
        super().__init__(line, what)
        self.line, self.what = line, what


@dataclass(frozen=True, kw_only=True)
class Loop:
    """The line of a loop in the script, and what made it the one."""

    line: int
    what: str


def find_loop(path: str, arguments: Sequence[str]) -> Loop:
    """The innermost loop of the script around the second `optimizer.step`, or, where no optimizer steps, around the fourth call of
    something compiled. The script runs uncompiled until then. Raises UsageError when there is none.
    """
    steps, undo = 0, ExitStack()

    def on_call(*_ignored: Any) -> None:
        if calls.counts.total() >= _CALLS and not steps:
            _look(path, "the innermost around the calls of what is compiled")

    def on_step(*_ignored: Any) -> None:
        nonlocal steps
        steps += 1
        if steps >= _OPTIMIZER_STEPS:
            _look(path, "the innermost around optimizer.step")

    def torch_is_there(torch: Any) -> None:
        calls.install()
        stay_alone(torch)
        from torch.optim.optimizer import register_optimizer_step_post_hook

        undo.callback(register_optimizer_step_post_hook(on_step).remove)
        undo.callback(torch.compiler.set_stance, "default")

    calls = CompiledCalls(on_call)
    try:
        with undo:
            ended = run_script(path, arguments, watched={"torch": torch_is_there})
    except _FoundError as found:
        if found.line:
            return Loop(line=found.line, what=found.what)
        raise UsageError(f"{path}: its steps are in no loop of that file; name a loop with --loop LINE, or mark a step") from None
    raise UsageError(f"{path} ended{ended}, and neither did an optimizer step twice nor was something compiled called {_CALLS} times")


def _look(path: str, what: str) -> NoReturn:
    """From the frames of the script outwards: the innermost loop around the line that each is at."""
    frame: types.FrameType | None = sys._getframe(1)
    tree = ast.parse(Path(path).read_bytes())
    while frame is not None:
        if frame.f_code.co_filename == path:
            line = _loop_around(tree, frame.f_lineno)
            if line is not None:
                raise _FoundError(line, what)
        frame = frame.f_back
    raise _FoundError(0, what)


def _loop_around(tree: ast.Module, line: int) -> int | None:
    loops = [node for node in ast.walk(tree) if isinstance(node, ast.For | ast.While | ast.AsyncFor)]
    around = [node for node in loops if node.body[0].lineno <= line <= (node.body[-1].end_lineno or 0)]
    innermost = max(around, key=lambda node: node.lineno, default=None)
    if innermost is None or _function_at(tree, line) is not _function_at(tree, innermost.lineno):
        return None
    return innermost.lineno


def _function_at(tree: ast.Module, line: int) -> ast.AST | None:
    """The innermost function whose body holds a line; a loop around a definition is no loop around its calls."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)]
    inside = [node for node in functions if node.lineno <= line <= (node.end_lineno or 0)]
    return max(inside, key=lambda node: node.lineno, default=None)


def mark_loop(tree: ast.Module, line: int, path: str) -> ast.Module:
    """The program with one call more, first in the body of the loop at `line`. Raises UsageError when there is no loop."""
    for node in ast.walk(tree):
        if isinstance(node, ast.For | ast.While | ast.AsyncFor) and node.lineno == line:
            call = ast.Expr(ast.Call(ast.Name(_MARK, ast.Load()), [], []))
            node.body.insert(0, ast.copy_location(call, node.body[0]))
            return ast.fix_missing_locations(tree)
    raise UsageError(f"{path} has no loop at line {line}")


class LoopRun:
    """A script whose loop waits for commands at the beginning of each iteration.

    `receive` gives the next command, `answer` says what a function gives (or what it raises).
    """

    def __init__(self, path: str, arguments: Sequence[str], line: int, receive: Callable[[], Mapping[str, Any]], answer: Any) -> None:
        self._path = path
        self._arguments = list(arguments)
        self._line = line
        self._receive = receive
        self._answer = answer
        self._iterations = 0
        self._job: Job | None = None
        self._timer: StepTimer | None = None

    def run_to_end(self) -> NoReturn:
        """Run the script to its end. Raises ScriptEndedError then: whoever waits for more iterations waits in vain."""
        watched = {"torch": stay_alone, "torch._dynamo": lambda _module: keep_all_metrics()}
        marked, names = partial(mark_loop, line=self._line, path=self._path), {_MARK: self._begin_iteration}
        ended = run_script(self._path, self._arguments, watched=watched, change=marked, names=names)
        self._iterations += self._job is not None
        ended = f"the loop at {Path(self._path).name}:{self._line} came to its end after {max(0, self._iterations - 1)} steps{ended}"
        needed = f"{WARM_UP_S:g} s of steps that compile nothing, then {MIN_ROUNDS} blocks of {MIN_BLOCK_S * 1000:g} ms"
        raise ScriptEndedError(f"{ended}; let the script make more: at least {needed}", 0)

    def _begin_iteration(self) -> None:
        switch = callback_switch()
        live = switch(None)
        try:
            self._iterations += 1
            while live is not None and live is not False:
                self._answer(self._refuse)
                self._receive()
            self._go_on()
        finally:
            switch(live)

    def _refuse(self) -> NoReturn:
        raise UsageError(f"the loop at {Path(self._path).name}:{self._line} is itself inside something compiled: choose another")

    def _go_on(self) -> None:
        """Go on with the job, or with the next ones until one needs iterations."""
        if self._timer is None:
            self._timer = StepTimer(cuda=cuda_in_use())
            self._answer(lambda: about_here(cuda=cuda_in_use()))
        while self._job is None or self._has_ended():
            command = self._receive()
            job = {"warm": self._warm, "block": self._block, "finish": self._finish}[command["do"]]
            self._job = job(command)

    def _has_ended(self) -> bool:
        assert self._job is not None
        try:
            next(self._job)
        except StopIteration as end:
            self._job, result = None, end.value
        else:
            return False
        self._answer(lambda: result)
        return True

    def _warm(self, _command: Mapping[str, Any]) -> Any:
        assert self._timer is not None
        warmed = yield from self._timer.warm_up()
        return {**asdict(warmed), **compile_facts()}

    def _block(self, command: Mapping[str, Any]) -> Any:
        assert self._timer is not None
        return asdict((yield from self._timer.block(int(command["calls"]))))

    def _finish(self, _command: Mapping[str, Any]) -> Any:
        import torch

        cuda = cuda_in_use()
        probed = yield from probe_steps(cuda=cuda)
        return {"peak_bytes": torch.cuda.max_memory_allocated() if cuda else None, **asdict(probed)}
