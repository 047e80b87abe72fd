"""A verb as a child process of `dynadiag mcp`: with the options that its tool has, no others, and no longer than its call."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import anyio

from dynadiag.errors import UnreadableInputError
from dynadiag.private_view.kernel import die_with_parent
from dynadiag.render.sanitise import clean_block

AT_ONCE = 4
"""Verbs that run at the same time; further calls wait."""
_LONGEST_OUTPUT = 64 << 20
_END_S = (3.0, 5.0, 5.0)
_OPTIONS: Mapping[str, frozenset[str]] = {
    "explain": frozenset({"-q", "--force", "--out", "--timeout", "--python", "--color", "--no-pictures", "--format"}),
    "rule": frozenset({"--json"}),
    "graph": frozenset({"--text"}),
    "fix": frozenset({"--force", "--out", "--time-limit"}),
    "prove": frozenset({"--out", "--patch", "--color"}),
    "minify": frozenset({"-q", "--force", "--out", "--timeout", "--kind"}),
    "start": frozenset({"--cure", "--warm-up", "--timeout", "--color", "-o", "--format", "--out"}),
    "numerics": frozenset({"-q", "--force", "--out", "--timeout", "--graph"}),
    "check": frozenset({"--max-breaks", "--max-recompiles", "--max-fallbacks", "--out", "--force", "--format", "-o"}),
}
"""The options that a tool may give to its verb. None of them writes but into run directories and folders that the server makes."""
_room = asyncio.Semaphore(AT_ONCE)


class Ended:
    """What a verb printed, and its exit status."""

    def __init__(self, status: int, out: str, err: str) -> None:
        self.status, self.out, self.err = status, out, err

    def error(self) -> str:
        """The line that says what is wrong."""
        lines = self.err.strip().splitlines() or [f"exit status {self.status}"]
        return clean_block(
            next((line for line in lines if "error:" in line.lower()), lines[-1]).removeprefix("dynadiag: error: "), limit=1000
        )

    def json(self) -> Any:
        """The JSON that it printed; UnreadableInputError where it printed none."""
        try:
            return json.loads(self.out)
        except ValueError:
            raise UnreadableInputError(self.error()) from None


def command(verb: str, options: Mapping[str, str | None], words: Sequence[str]) -> list[str]:
    """The command line of a verb. `words` are a target, which is no option, and what belongs to it."""
    if beyond := set(options) - _OPTIONS[verb]:
        raise ValueError(f"no tool gives {sorted(beyond)} to {verb}")
    given = [word for name, value in options.items() for word in (name, value) if word is not None]
    # -P: a `json.py` in the folder, where the child starts, is none of ours.
    return [sys.executable, "-P", "-m", "dynadiag", verb, *given, *words]


async def run_verb(verb: str, options: Mapping[str, str | None], words: Sequence[str], *, limit_s: float = 900) -> Ended:
    """Run a verb with nothing on its stdin: our own streams carry the protocol. It ends with its call."""
    async with _room:
        return await _run(verb, command(verb, options, words), limit_s)


async def _run(verb: str, line: Sequence[str], limit_s: float) -> Ended:
    try:
        child = await asyncio.create_subprocess_exec(
            *line,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            preexec_fn=_ends_with_server(),
        )
    except OSError as error:
        raise UnreadableInputError(f"dynadiag {verb} cannot be started: {error.strerror or error}") from None
    out, err = _Output(child.stdout), _Output(child.stderr)
    try:
        if not await _has_ended(child, limit_s):
            raise UnreadableInputError(f"dynadiag {verb} did not end within {limit_s:g} s")
        await out.rest()
        await err.rest()
    finally:
        with anyio.CancelScope(shield=True):  # a cancelled call waits for nothing else
            out.close()
            err.close()
            await _end(child)
    return Ended(child.returncode or 0, out.text(), err.text())


def _ends_with_server() -> Callable[[], None] | None:
    """What makes a verb end with the server, even where our guardian was killed first; its own guardian then ends its program (Linux)."""
    return partial(die_with_parent, os.getpid()) if sys.platform == "linux" else None


class _Output:
    """The beginning of what a child prints; the rest is read too, so that it can go on, and dropped."""

    def __init__(self, stream: asyncio.StreamReader | None) -> None:
        assert stream is not None
        self._stream, self._kept, self._room = stream, bytearray(), _LONGEST_OUTPUT
        self._task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        while data := await self._stream.read(1 << 16):
            self._kept += data[: self._room]
            self._room -= min(len(data), self._room)

    async def rest(self) -> None:
        """What is on its way when the child has ended; something that it left running may keep the stream open for ever."""
        await asyncio.wait([self._task], timeout=1)

    def close(self) -> None:
        self._task.cancel()

    def text(self) -> str:
        return self._kept.decode("utf-8", "replace")


async def _has_ended(child: asyncio.subprocess.Process, seconds: float) -> bool:
    """Whether the child has ended in time. `wait` alone also waits for its streams (Python 3.11), which others may hold."""
    waiting = asyncio.create_task(child.wait())
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    try:
        while child.returncode is None and (left := end - loop.time()) > 0:
            await asyncio.wait([waiting], timeout=min(0.2, left))
    finally:
        waiting.cancel()
    return child.returncode is not None


async def _end(child: asyncio.subprocess.Process) -> None:
    """A call that was cancelled, or took too long, leaves nothing running.

    The first interrupt goes to the program, the second makes the verb end it; when the verb is killed, its guardian does.
    """
    for number, seconds in zip((signal.SIGINT, signal.SIGINT, signal.SIGKILL), _END_S, strict=True):
        if child.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            child.send_signal(number)
        await _has_ended(child, seconds)
