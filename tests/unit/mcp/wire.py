"""A client of `dynadiag mcp` that writes its own lines: what no client of the SDK would send, too."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from queue import Queue
from typing import Any


class Wire:
    """A server, and lines to and from it."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self._answers: Queue[dict[str, Any]] = Queue()
        self._early: dict[int, dict[str, Any]] = {}
        self._last = 0
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self.process.stdout:
            self._answers.put(json.loads(line))
        self._answers.put({"id": None, "ended": True})

    def send(self, method: str, params: dict[str, Any], *, wants_answer: bool = True) -> int:
        said = {"jsonrpc": "2.0", "method": method, "params": params}
        if wants_answer:
            self._last += 1
            said["id"] = self._last
        self.process.stdin.write(json.dumps(said).encode() + b"\n")
        self.process.stdin.flush()
        return self._last

    def answer(self, number: int, seconds: float = 120) -> dict[str, Any]:
        while number not in self._early:
            found = self._answers.get(timeout=seconds)
            assert "ended" not in found, "the server has ended"
            self._early[found.get("id")] = found
        return self._early.pop(number)

    def start_call(self, tool: str, arguments: dict[str, Any]) -> int:
        return self.send("tools/call", {"name": tool, "arguments": arguments})

    def call(self, tool: str, **arguments: Any) -> tuple[bool, str]:
        """Whether it was refused, and the text of the answer."""
        found = self.answer(self.start_call(tool, arguments))
        if "error" in found:
            return True, found["error"]["message"]
        return found["result"].get("isError", False), found["result"]["content"][0]["text"]


@contextlib.contextmanager
def serving(folder: Path, *words: str, cwd: Path | None = None) -> Iterator[Wire]:
    """A server that was greeted."""
    process = subprocess.Popen(
        [sys.executable, "-m", "dynadiag", "mcp", "--folder", str(folder), *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=cwd,
        start_new_session=True,
    )
    try:
        wire = Wire(process)
        me = {"name": "test", "version": "0"}
        wire.answer(wire.send("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": me}))
        wire.send("notifications/initialized", {}, wants_answer=False)
        yield wire
    finally:
        with contextlib.suppress(OSError):
            process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(120)
        process.kill()
        process.wait()
        process.stdout.close()


def wait_until(condition: Any, seconds: float = 120) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.05)
    return bool(condition())
