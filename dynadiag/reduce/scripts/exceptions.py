"""Failures that a plain run of a script shows: an exception, a crash, a hang. Which is meant, and how long to wait for it. No torch."""

from __future__ import annotations

import re

from dynadiag.reduce.core.failure import Failure, Said

SHOWN_BY_A_RUN = ("compile_error", "runtime_error", "crash", "hang")
"""Kinds that need no recording: the script ends in them. The same run without the compiler must end well."""
_NOT_THE_COMPILERS = ("exit", "killed")
_LEAST_TIMEOUT_S = 60.0
_LEAST_HANG_S = 30.0


def is_meant(failure: Failure, *, kind: str | None, match: str | None, said: Said | None) -> bool:
    """Whether this is the failure that is looked for: of `kind` (None: any of SHOWN_BY_A_RUN), with a text that matches, and where the
    exception of an earlier run is known, the same exception (its class and its normalised message).
    """
    if failure.kind in _NOT_THE_COMPILERS or (failure.kind != kind if kind is not None else failure.kind not in SHOWN_BY_A_RUN):
        return False
    if said is not None and failure.said() != said:
        return False
    return match is None or bool(re.search(match, f"{failure.title()}\n{failure.message}\n{failure.detail}"))


def later_timeout(failure: Failure, *, failing_s: float, passing_s: float | None, asked_s: float) -> float:
    """Seconds for a candidate: ten times the first run. Of a hang that run says nothing: then ten times the run without the compiler, and
    no more than what was asked for.
    """
    if failure.kind == "hang":
        return min(asked_s, max(_LEAST_HANG_S, 10 * (passing_s or 0.0)))
    return max(_LEAST_TIMEOUT_S, 10 * failing_s)
