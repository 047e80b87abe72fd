"""One line of progress on stderr, only for a person who waits: after half a second, and only on a terminal."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

_LONGEST_LINE = 4000
_PATIENCE_S = 0.5
_REDRAW_S = 0.1


PRINT_S = 20.0
"""Seconds between two lines of a long search where stderr is no terminal."""
_LOOK_S = 1.0


class StatusLine:
    """One line on stderr that is redrawn; where stderr is no terminal a line of its own now and then, so that nobody waits in silence.

    `print_s` are the seconds between two such lines; None prints none.
    """

    def __init__(self, print_s: float | None = None) -> None:
        self.drawn_at = 0.0
        self._print_s = print_s
        self._printed_at = self._begun_at = time.monotonic()
        self._text = ""
        self._lock = threading.Lock()

    def draw(self, text: str) -> None:
        """Replace what the line says."""
        with self._lock:
            if text != self._text:
                self._text, self._begun_at = text, time.monotonic()
        if sys.stderr.isatty():
            self.drawn_at = time.monotonic()
            sys.stderr.write(f"\r\x1b[Kdynadiag: {text}")
            sys.stderr.flush()
        else:
            self.print_when_due()

    def print_when_due(self) -> None:
        """Print where the work is, if nothing was printed for `print_s` seconds; how long it has been there, if that is as long."""
        with self._lock:
            now = time.monotonic()
            if self._print_s is None or not self._text or now - self._printed_at < self._print_s:
                return
            self._printed_at = now
            there_s = now - self._begun_at
            since = f" (for {there_s:.0f} s now)" if there_s >= self._print_s else ""
            print(f"dynadiag: {self._text}{since}", file=sys.stderr, flush=True)

    @contextmanager
    def ticking(self) -> Iterator[None]:
        """Print also while nobody draws: a script that runs, or one question, may take minutes. Nothing is added on a terminal."""
        ended = threading.Event()

        def tick() -> None:
            while not ended.wait(_LOOK_S):
                self.print_when_due()

        ticker = threading.Thread(target=tick, daemon=True)
        if self._print_s is not None and not sys.stderr.isatty():
            ticker.start()
        try:
            yield
        finally:
            ended.set()
            if ticker.is_alive():
                ticker.join()

    def wipe(self) -> None:
        """Take the line away, if it was ever drawn."""
        self._text = ""
        if self.drawn_at:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


class SearchLine:
    """The line of a reduction: what is left of how much, questions so far and a second. `unit` is what is counted."""

    def __init__(self, line: StatusLine, unit: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._line, self._unit, self._clock = line, unit, clock
        self._first = self._queries = 0
        self._since: tuple[float, int] | None = None

    def show(self, message: Mapping[str, Any]) -> None:
        """Draw what a message of the worker says, if it says how far the search is."""
        if "doing" in message:
            self._line.draw(str(message["doing"]))
        if not isinstance(message.get("nodes"), int):
            return
        nodes, queries = message["nodes"], message.get("queries", 0)
        if not self._first or "ready_cpu_s" in message or queries < self._queries:  # a further search, at the next level
            self._first, self._since = nodes, None
        self._queries = queries
        asked = f"{queries} queries{self._rate(queries)}, {message['phase']}" if queries else "confirming the failure"
        self._line.draw(f"{nodes} of {self._first} {self._unit} left, {asked}")

    def _rate(self, queries: int) -> str:
        """Since the first answer of this search."""
        if self._since is None:
            self._since = self._clock(), queries
            return ""
        passed, answers = self._clock() - self._since[0], queries - self._since[1]
        return f", {answers / passed:.1f} a second" if passed > 0 else ""


@contextmanager
def progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """Give a callable `advance(done, total)` that redraws a line `what 42 %`; the line is wiped at the end."""
    begun = time.monotonic()
    line = StatusLine()

    def advance(done: int, total: int) -> None:
        now = time.monotonic()
        if now - begun >= _PATIENCE_S and now - line.drawn_at >= _REDRAW_S:
            line.draw(f"{what} {f'{100 * done // total} %' if total else done}")

    try:
        yield advance
    finally:
        line.wipe()


def on_one_line(text: str) -> str:
    """The text as it can be printed on one line; what others wrote into it (names, messages of exceptions) does nothing to the terminal."""
    from dynadiag.render.sanitise import clean_block

    return " ".join(clean_block(text, limit=_LONGEST_LINE, lines=_LONGEST_LINE).split("\n"))
