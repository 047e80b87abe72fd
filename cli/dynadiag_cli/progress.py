"""One line of progress on stderr, only for a person who waits: after half a second, and only on a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_PATIENCE_S = 0.5
_REDRAW_S = 0.1


@contextmanager
def progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """Give a callable `advance(done, total)` that redraws a line `what 42 %`; the line is wiped at the end."""
    begun = time.monotonic()
    shown = 0.0

    def advance(done: int, total: int) -> None:
        nonlocal shown
        now = time.monotonic()
        if not sys.stderr.isatty() or now - begun < _PATIENCE_S or now - shown < _REDRAW_S:
            return
        shown = now
        share = f"{100 * done // total} %" if total else f"{done}"
        sys.stderr.write(f"\r\x1b[Kdynadiag: {what} {share}")
        sys.stderr.flush()

    try:
        yield advance
    finally:
        if shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
