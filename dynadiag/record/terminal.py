"""Lending the terminal to the program, so that it can read from it and Ctrl-C reaches it directly; Ctrl-Z stops both of us."""

from __future__ import annotations

import contextlib
import os
import signal
import sys


class Terminal:
    """Our controlling terminal, if there is one and we are in its foreground whenever it is lent."""

    def __init__(self) -> None:
        self._descriptor: int | None = None
        with contextlib.suppress(OSError):
            self._descriptor = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY)
        self._lent = False

    def lend(self, group: int) -> bool:
        """Make a process group the terminal's foreground group, if ours is that now; whether it was."""
        if not self._is_ours():
            return False
        self._lent = self._give(group)
        return self._lent

    def take_back(self) -> None:
        """Make our group the foreground group again, if the terminal was lent and nobody else has it now."""
        if self._lent:
            self._give(os.getpgrp())
        self._lent = False

    def close(self) -> None:
        """Take it back for good."""
        self.take_back()
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor = None

    def follow_stop(self, group: int, number: int, *, asked: bool) -> None:
        """The program was stopped by this signal: stop with it, as a shell expects of a job, and go on with it when we are continued.

        Not for one that stops itself or that somebody stopped: whoever did it continues it. `asked` says that we passed the signal on.
        """
        if number in (signal.SIGTTIN, signal.SIGTTOU) and self.lend(group):
            return  # it only wants the terminal, which is ours to lend
        if number == signal.SIGSTOP or (number == signal.SIGTSTP and not (self._lent or asked)):
            return
        wanted = self._lent or number != signal.SIGTSTP
        before = {literal: signal.signal(literal, signal.SIG_DFL) for literal in (signal.SIGTSTP, signal.SIGCONT)}
        self.take_back()
        # As the terminal does it to a group. Without a shell that looks after jobs the kernel ignores it, and both go on.
        os.killpg(0, number)
        for signals, handler in before.items():
            signal.signal(signals, handler)
        if not wanted or not self.lend(group):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signal.SIGCONT)

    def _is_ours(self) -> bool:
        try:
            return self._descriptor is not None and os.tcgetpgrp(self._descriptor) == os.getpgrp()
        except OSError:
            return False

    def _give(self, group: int) -> bool:
        """A background process that does this gets SIGTTOU, which would stop it: it is blocked meanwhile."""
        if self._descriptor is None:
            return False
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
        try:
            os.tcsetpgrp(self._descriptor, group)
            os.killpg(group, signal.SIGCONT)
        except OSError:
            return False
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return True


def stdin_is_terminal() -> bool:
    """Whether the program would read from a terminal."""
    try:
        return sys.stdin is not None and sys.stdin.isatty()
    except (OSError, ValueError):
        return False
