"""The guardian's process (`record/guardian.py`): it reads one JSON object a line, and cleans up when they end without a goodbye.

It answers each line with "." when it is done, and each Ctrl-C before that with "i".
It runs as `python -I -S`, so that it starts in milliseconds; what it needs in the end it imports then.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time

_DEAF = ("SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGTSTP", "SIGTTIN", "SIGTTOU", "SIGPIPE")
_ANSWER = signal.SIGRTMAX if hasattr(signal, "sigwaitinfo") and hasattr(signal, "SIGRTMAX") else None
_GRACE_S = 5.0


def main() -> None:
    """Stay until our owner is gone."""
    owner = os.getppid()
    for name in _DEAF:
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    if _ANSWER is not None:
        signal.pthread_sigmask(signal.SIG_BLOCK, {_ANSWER})
        threading.Thread(target=_tell_of_interrupts, args=(_ANSWER,), daemon=True).start()
    group: int | None = None
    marks: list[str] = []
    kept: list[str] = []
    first = signal.SIGTERM
    for line in sys.stdin.buffer:
        told = json.loads(line)
        if "bye" in told:
            os._exit(0)
        if "keep" in told:
            kept.append(told["keep"])
            first = signal.SIGKILL if told["kill"] else first
        if "group" in told:
            group, marks = told["group"], told["marks"]
            with contextlib.suppress(OSError):  # the program has ended already
                os.setpgid(0, group or 0)
        _answer()
    with contextlib.suppress(OSError):
        os.setpgid(0, 0)
    # The kernel closes its pipes a moment before it is dead; what lives still keeps its folders.
    end = time.monotonic() + _GRACE_S
    while os.getppid() == owner and time.monotonic() < end:
        time.sleep(0.01)
    _clean_up(group, [*kept, *marks], first, owner)
    os._exit(0)


def _answer() -> None:
    """Through the thread that counts Ctrl-C: of waiting signals Linux gives the lowest number first, real-time ones are queued."""
    try:
        if _ANSWER is not None:
            os.kill(os.getpid(), _ANSWER)
            return
    except OSError:  # no room in the queue of signals
        pass
    _say(b".")


def _tell_of_interrupts(answer: int) -> None:
    """One byte for each Ctrl-C of the terminal; what a process sent (`kill`, our owner) has another code (sigaction(2), SI_KERNEL)."""
    while True:
        found = signal.sigwaitinfo({signal.SIGINT, answer})
        if found.si_signo == answer and found.si_pid == os.getpid():
            _say(b".")
        elif found.si_signo == signal.SIGINT and found.si_code > 0:
            _say(b"i")


def _say(what: bytes) -> None:
    with contextlib.suppress(OSError):
        os.write(1, what)


def _clean_up(group: int | None, marks: list[str], first: int, owner: int) -> None:
    sys.path.insert(0, __file__.rpartition("/dynadiag/")[0])
    from dynadiag.private_view.recovery import recover_dead
    from dynadiag.record.processes import end_orphans
    from dynadiag.scratch import sweep

    end_orphans(group, [os.fsencode(mark) for mark in marks], first=first, grace_s=_GRACE_S)
    recover_dead(owner)
    sweep()


if __name__ == "__main__":
    main()
