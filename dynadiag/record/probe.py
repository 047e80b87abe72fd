"""After the program: what needs torch to know of its graphs, found by another process of the program's own interpreter."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

_PROBE = Path(__file__).resolve().parents[1] / "fx" / "probe_main.py"
_GRAPH = b'"dynamo_output_graph"'
_ENVIRONMENT = b'"dynadiag_environment"'
_LOGS = "dedicated_log_torch_trace_*.log"
_BLOCK_BYTES = 1 << 20
_LONGEST_HEAD_BYTES = 1 << 20
_LOOK_S = 0.25
_GRACE_S = 120.0  # to import torch, perhaps several times: each graph that is stopped makes a fresh process of it
# What would make torch write, or wait for a debugger, in a process that is not the user's.
_DROPPED = ("TORCH_TRACE", "TORCH_LOGS", "TORCH_LOGS_OUT", "TORCH_COMPILE_DEBUG", "PYTHONINSPECT", "PYTHONBREAKPOINT", "PYTHONSTARTUP")


def probe_run(directory: Path, *, budget_s: float = 60.0, advance: Callable[[int, int], None] | None = None) -> str | None:
    """Follow the graphs of a run that was just recorded, and append what they mutate to its logs; gives why not, in one line.

    The interpreter is the one that the recorded process named, so `directory` must be of a program that we have just run. None when all
    went well, and at once when no graph was captured. Never raises for what goes wrong there. `advance(done, total)` counts seconds.
    """
    logs = [log for log in sorted(directory.glob(_LOGS)) if _holds(log, _GRAPH)]
    python = next((found for found in map(_interpreter, logs) if found is not None), None)
    if not logs:
        return None
    if python is None:
        return "mutations are not probed: the run does not record which Python it used"
    try:
        return _wait(_start(python, directory, budget_s), budget_s, advance)
    except OSError as error:
        return f"mutations are not probed: {python} cannot be started: {error.strerror}"


def _holds(log: Path, mark: bytes) -> bool:
    try:
        with log.open("rb") as stream:
            tail = b""
            while block := stream.read(_BLOCK_BYTES):
                if mark in tail + block:
                    return True
                tail = block[-len(mark) :]
    except OSError:
        return False
    return False


def _interpreter(log: Path) -> str | None:
    """The executable of the process that wrote this log, from the first of our own records in it."""
    try:
        with log.open("rb") as stream:
            lines = stream.read(_LONGEST_HEAD_BYTES).split(b"\n")
    except OSError:
        return None
    start = next((number for number, line in enumerate(lines, start=1) if _ENVIRONMENT in line), None)
    if start is None:
        return None
    payload: list[bytes] = list(itertools.takewhile(lambda line: line.startswith(b"\t"), lines[start:]))
    return _executable(b"".join(payload))


def _executable(payload: bytes) -> str | None:
    try:
        found = json.loads(payload)
    except ValueError:
        return None
    path = found.get("executable") if isinstance(found, dict) else None
    return path if isinstance(path, str) and os.path.isabs(path) and os.access(path, os.X_OK) else None  # noqa: PTH117


def _start(python: str, directory: Path, budget_s: float) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [python, str(_PROBE), str(directory), "--budget-s", str(budget_s)],
        env=environment_afterwards(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )


def environment_afterwards() -> dict[str, str]:
    """The environment of a process of ours that looks at graphs after the program: on the CPU, one thread, and quiet."""
    kept = {name: value for name, value in os.environ.items() if name not in _DROPPED}
    return kept | {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}


def _wait(child: subprocess.Popen[bytes], budget_s: float, advance: Callable[[int, int], None] | None) -> str | None:
    began = time.monotonic()
    try:
        while True:
            try:
                _, said = child.communicate(timeout=_LOOK_S)
                break
            except subprocess.TimeoutExpired:
                passed = time.monotonic() - began
                if passed > budget_s + _GRACE_S:
                    return f"not all mutations are probed: the probe did not finish within {budget_s + _GRACE_S:.0f} s"
                if advance is not None:
                    advance(min(int(passed), int(budget_s)), int(budget_s))
    except KeyboardInterrupt:
        return "not all mutations are probed: interrupted"
    finally:
        if child.poll() is None:
            child.kill()
            child.communicate()
    return None if child.returncode == 0 else _why(child.returncode, said)


def _why(status: int, said: bytes) -> str:
    lines = said.decode("utf-8", "replace").strip().splitlines()
    last = lines[-1].removeprefix("dynadiag: ") if lines else "no output"
    shown = "".join(char for char in last if char.isprintable())[:300]
    return shown if "mutations are not probed" in shown else f"not all mutations are probed: the probe ended with {status}: {shown}"
