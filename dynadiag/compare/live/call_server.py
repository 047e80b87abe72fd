"""A copy of the process as it was before a call, which makes that call as often as it is asked to: in eager, with noise, or compiled anew.

Each run is made in a copy of that copy. What it saw goes into an anonymous file that both sides hold open.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from dynadiag.capture.process_copy import ProcessCopy, above_streams, copy_process
from dynadiag.capture.reach import State, find_state
from dynadiag.compare.aliasing import alias_pattern
from dynadiag.compare.entries import Entries, NoisyEntries, OtherRuns, by_name
from dynadiag.compare.live.seen_call import Before, note_call
from dynadiag.compare.noise import in_float64, perturbing
from dynadiag.compare.notes import Entry
from dynadiag.torch_compat.dispatch.rounding import CoarsestRounding, NoisySums
from dynadiag.torch_compat.dynamo.apart import compile_apart

_RUN_S = 120.0
_FURTHER, _SAME = (1, 2, 3), (4, 5)
_OTHER_SEEDS = (1, 2)


@dataclass(frozen=True, kw_only=True)
class RunKind:
    """How the call is made: with sums off by rounding (`noise`: a seed) and a state that is off as well, in float64, from other random
    numbers, `coarsest`: to learn what it computes in, or `compiled` by a backend ("" is the program's own) without any cache.
    """

    noise: int | None = None
    nudged: bool = False
    wide: bool = False
    seed: int | None = None
    coarsest: bool = False
    half: bool = False
    compiled: str | None = None


EAGER = RunKind()


@dataclass(frozen=True)
class CallToMake:
    """The call: the function and its arguments, and `compile_` that compiles it with the program's options and another backend.

    `as_uncompiled` takes back what torch.compile changes for the whole process.
    """

    original: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    compile_: Callable[[str | None], Any]
    quiet: Callable[[], None]
    as_uncompiled: Callable[[], None]
    cap_bytes: int


class CallServer:
    """Made before the call, in the program's process; asked from there or from any copy made later."""

    def __init__(self, call: CallToMake, before: Before) -> None:
        self._call, self._before = call, before
        self._file = above_streams(os.memfd_create("dynadiag", 0))
        self._asked, self._asking = map(above_streams, os.pipe())
        self.ask(EAGER)  # made at once, while the program goes on
        self.copy: ProcessCopy = copy_process(self._serve)
        self._answers = b""
        self.why_not = ""

    def ask(self, kind: RunKind) -> None:
        """Let a run be made."""
        os.write(self._asking, json.dumps(asdict(kind)).encode() + b"\n")

    def answer(self) -> Entries | None:
        """What the oldest run that was asked for saw; None where it could not be made."""
        while b"\n" not in self._answers:
            piece = os.read(self.copy.reading, 1 << 12)
            if not piece:
                return None
            self._answers += piece
        line, _, self._answers = self._answers.partition(b"\n")
        if line != b"made":
            self.why_not = line.decode("utf-8", "replace")
            return None
        with os.fdopen(os.dup(self._file), "rb") as file:
            file.seek(0)
            found: Entries = torch.load(file, weights_only=True)
        os.write(self._asking, b"\n")  # read: the next run may overwrite it
        return found

    def run(self, kind: RunKind) -> Entries | None:
        """Ask, and wait for the answer."""
        self.ask(kind)
        return self.answer()

    def end(self) -> None:
        """Let it go."""
        self.copy.end()
        for descriptor in (self._file, self._asked, self._asking):
            with contextlib.suppress(OSError):
                os.close(descriptor)

    # -- in the copies

    def _serve(self, writing: int) -> None:
        with os.fdopen(self._asked, "rb", closefd=False) as requests:
            for line in requests:
                if not line.strip():
                    continue
                kind = RunKind(**json.loads(line))
                run = copy_process(lambda told, kind=kind: self._make(kind, told))  # type: ignore[misc]
                made = run.wait(_RUN_S) == b"made"
                os.write(writing, b"made\n" if made else f"failed {' '.join(run.why_not.split())}\n".encode())
                if made:
                    requests.readline()

    def _make(self, kind: RunKind, writing: int) -> None:
        call = self._call
        call.quiet()
        entries: list[Entry]
        with contextlib.ExitStack() as stack:
            seen = None
            state = find_state(call.original, call.args, call.kwargs)
            if kind.coarsest:
                seen = stack.enter_context(CoarsestRounding())
            _change(kind, state, stack)
            function = call.original
            if kind.compiled is None:
                torch.compiler.set_stance("force_eager")
                call.as_uncompiled()
            else:
                compile_apart(stack.enter_context(tempfile.TemporaryDirectory()))
                function = call.compile_(kind.compiled or None)
            entries = note_call(
                call.original, call.args, call.kwargs, self._before, lambda: function(*call.args, **call.kwargs), call.cap_bytes
            )
            if seen is not None:
                entries.append(("computed in", "halves", str(seen.half)))
        with os.fdopen(os.dup(self._file), "wb") as file:
            file.seek(0)  # the position is shared
            file.truncate(0)
            torch.save(by_name(entries), file)
        os.write(writing, b"made")


def _change(kind: RunKind, state: State, stack: contextlib.ExitStack) -> None:
    tensors = [held.tensor for held in state.held.values() if held.kind != "setting" and held.tensor.is_floating_point()]
    if kind.seed is not None:
        torch.manual_seed(kind.seed)
    if kind.nudged:
        change = perturbing(kind.noise or 0, torch.float16 if kind.half else None)
        with torch.no_grad():
            for tensor in tensors:
                tensor.data.copy_(change(tensor.data.clone()))
    if kind.wide:
        if alias_pattern(tensors):
            raise ValueError("tensors that share memory would part")
        stack.enter_context(in_float64(tensors))
    if kind.noise is not None:
        stack.enter_context(NoisySums(kind.noise))


def other_runs(server: CallServer, *, drew: bool) -> OtherRuns:
    """More runs of eager, each made once, when it is first asked for; `drew`: the call draws random numbers."""
    kept: dict[str, Any] = {}

    def once(name: str, make: Callable[[], Any]) -> Any:
        if name not in kept:
            kept[name] = make()
        return kept[name]

    def drawn() -> Sequence[Entries]:
        runs = [server.run(RunKind(seed=seed)) for seed in _OTHER_SEEDS] if drew else []
        return [run for run in runs if run is not None]

    def noisy() -> NoisyEntries:
        first = server.run(RunKind(coarsest=True)) or {}
        coarsest = {"torch.float16": torch.float16, "torch.bfloat16": torch.bfloat16}.get(first.get(("computed in", "halves"), ""))
        half = coarsest is not None
        further = [server.run(RunKind(noise=seed, nudged=True, half=half)) for seed in _FURTHER]
        same = [server.run(RunKind(noise=seed)) for seed in _SAME]
        return NoisyEntries(
            further=[run for run in further if run is not None],
            same=[run for run in same if run is not None],
            exact=None if drew else server.run(RunKind(wide=True)),
            coarsest=coarsest,
        )

    return OtherRuns(
        same=lambda: once("same", lambda: server.run(EAGER)),
        other_draws=lambda: once("drawn", drawn),
        noise=lambda: once("noise", noisy),
    )
