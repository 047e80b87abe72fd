"""Telling when an endless program has stopped compiling."""

from __future__ import annotations

import time
from pathlib import Path

_COMPILED = (b'"dynamo_start"', b'"compilation_metrics"')


class StabilityWatch:
    """True once something has compiled and then nothing new for `seconds`; it reads only what was appended since the last look."""

    def __init__(self, directory: Path, seconds: float) -> None:
        self._directory = directory
        self._seconds = seconds
        self._read: dict[Path, int] = {}
        self._last_compiled: float | None = None

    def is_stable(self) -> bool:
        """Look now."""
        for log in self._directory.glob("dedicated_log_torch_trace_*.log"):
            if self._has_news(log):
                self._last_compiled = time.monotonic()
        return self._last_compiled is not None and time.monotonic() - self._last_compiled >= self._seconds

    def _has_news(self, log: Path) -> bool:
        begin = self._read.get(log, 0)
        news = False
        with log.open("rb") as file:
            file.seek(begin)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                begin += len(line)
                news = news or (not line.startswith(b"\t") and any(word in line for word in _COMPILED))
        self._read[log] = begin
        return news
