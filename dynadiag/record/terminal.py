"""Lending the terminal to the program, so that it can read from it and Ctrl-C reaches it directly."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def foreground(group: int) -> Iterator[None]:
    """Make a process group the foreground group of our terminal for a while; nothing happens when stdin is none or somebody else's."""
    terminal = _terminal()
    if terminal is None:
        yield
        return
    _give(terminal, group)
    try:
        yield
    finally:
        _give(terminal, os.getpgrp())


def _terminal() -> int | None:
    try:
        descriptor = sys.stdin.fileno()
        return descriptor if os.isatty(descriptor) and os.tcgetpgrp(descriptor) == os.getpgrp() else None
    except (OSError, ValueError, AttributeError):
        return None


def _give(terminal: int, group: int) -> None:
    """A background process that does this gets SIGTTOU, which would stop it."""
    before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    try:
        os.tcsetpgrp(terminal, group)
        os.killpg(group, signal.SIGCONT)
    except OSError:
        return
    finally:
        signal.signal(signal.SIGTTOU, before)
