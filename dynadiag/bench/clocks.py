"""GPU clocks, temperature and power while rounds are timed, from `nvidia-smi`, which changes nothing on the card."""

from __future__ import annotations

import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from typing import IO, Any

_FIELDS = {"sm_mhz": "clocks.sm", "temperature_c": "temperature.gpu", "power_w": "power.draw"}
_EVERY_MS = "500"
_LEAVE_S = 5.0
# A clock that moved by more than this share is said.
_MOVED = 0.05


class ClockWatch:
    """Watches one GPU, named by its UUID ("GPU-..."), between `start` and `stop`; without a GPU or `nvidia-smi` it sees nothing.

    Not by its number: that of `nvidia-smi` knows neither CUDA_VISIBLE_DEVICES nor CUDA's own order.
    """

    def __init__(self, gpu: str | None) -> None:
        self._gpu = gpu
        self._child: subprocess.Popen[bytes] | None = None
        self._output: IO[bytes] | None = None

    def start(self) -> None:
        """Begin to read twice a second."""
        program = shutil.which("nvidia-smi")
        if program is None or self._gpu is None:
            return
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - closed by stop
        query = f"--query-gpu={','.join(_FIELDS.values())}"
        command = [program, "-i", self._gpu, query, "--format=csv,noheader,nounits", "-lms", _EVERY_MS]
        self._child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self._output, stderr=subprocess.DEVNULL)

    def stop(self) -> dict[str, Any] | None:
        """Lowest, median and highest of each reading; None when there was none."""
        if self._child is None or self._output is None:
            return None
        self._child.terminate()
        try:
            self._child.wait(_LEAVE_S)
        except subprocess.TimeoutExpired:
            self._child.kill()
        self._output.seek(0)
        text = self._output.read().decode("utf-8", "replace")
        self._output.close()
        return summary(text.splitlines())


def summary(lines: Sequence[str]) -> dict[str, Any] | None:
    """The readings in lines such as "1980, 34, 512.1"; a line that is not three numbers is left out."""
    rows = [row for line in lines if (row := _numbers(line)) is not None]
    if not rows:
        return None
    columns = dict(zip(_FIELDS, zip(*rows, strict=True), strict=True))
    spans = {name: {"low": min(values), "median": statistics.median(values), "high": max(values)} for name, values in columns.items()}
    return {"readings": len(rows), **spans}


def _numbers(line: str) -> tuple[float, ...] | None:
    try:
        row = tuple(float(part) for part in line.split(","))
    except ValueError:
        return None
    return row if len(row) == len(_FIELDS) else None


def clock_note(clocks: Mapping[str, Any] | None) -> str | None:
    """What to say when the clock was not steady."""
    if clocks is None:
        return None
    clock = clocks["sm_mhz"]
    if clock["low"] >= (1 - _MOVED) * clock["high"]:
        return None
    span = f"between {clock['low']:.0f} and {clock['high']:.0f} MHz"
    return f"noise: the GPU's clock moved {span} (up to {clocks['temperature_c']['high']:.0f} C) while arms were timed"
