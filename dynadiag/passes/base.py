"""What every pass shares: its shape, and the classes that findings are ranked by."""

from __future__ import annotations

from enum import IntEnum
from typing import Protocol

from dynadiag.model.report import PassResult
from dynadiag.model.run import Run


class Pass(Protocol):
    """A diagnosis: takes the plain run, returns what it found; it must not read files, import torch or keep state."""

    def __call__(self, run: Run, /) -> PassResult:
        """What this pass found in `run`."""
        ...


class Priority(IntEnum):
    """The classes that findings are sorted by, most expensive first; within a class the numbers of `Finding.rank[1:]` decide.

    A pass builds `rank=(Priority.X, -number, ...)`: larger numbers must come out smaller, because the list is sorted upwards.
    """

    NOTHING_COMPILED = 0
    WRONG_RESULT = 1
    FAILED = 2
    RANKS_APART = 3
    RAN_EAGER = 4
    LIMIT_HIT = 5
    GRAPH_BREAK = 6
    RECOMPILED = 7
    RANKS_DIFFER = 8
    COMPILE_TIME = 9
    GUARDS = 10
    REMARK = 11
