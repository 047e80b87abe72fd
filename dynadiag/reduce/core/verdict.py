"""What an oracle says of a candidate: never a bool inside, so that another failure is not taken for the one that we look for."""

from __future__ import annotations

import enum


class Verdict(enum.Enum):
    """One answer of an oracle. Only `INTERESTING` candidates are adopted."""

    INTERESTING = "interesting"
    """The same failure as the original's."""
    BORING = "boring"
    """It runs, and nothing fails."""
    DIFFERENT = "different"
    """It fails, but differently."""
    INVALID = "invalid"
    """It is not a valid program: it also fails without the compiler, or there is an environment error."""
    TIMEOUT = "timeout"
    """It did not finish in time, and a hang is not the failure that we look for."""


def as_verdict(answer: object) -> Verdict:
    """The verdict behind what a user's oracle returned: a `Verdict`, or anything with a truth value.

    Raises TypeError for text, which would be true whatever it says.
    """
    if isinstance(answer, Verdict):
        return answer
    if isinstance(answer, str | bytes):
        raise TypeError(f"the oracle returned {answer!r}: expected a bool or a dynadiag.Verdict")
    return Verdict.INTERESTING if answer else Verdict.BORING
