"""What an oracle says of a candidate, and how often one that does not always fail is asked, so that a wrong verdict is rare. No torch.

A verdict is never a bool inside, so that another failure is not taken for the one that we look for.

A candidate that fails as often as the original must not be taken for passing. How often the original fails is only known from a few runs:
the bound takes the lowest share that these runs still allow (Clopper and Pearson, 1934), so that luck in the count does not spoil it.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence


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


CONFIRMATIONS = 3
"""Runs of the original; when all fail alike, the failure is taken for one that always comes."""
LOOKS = 7
"""Runs after which one that comes in half of its runs has shown itself, but for once in 128: where the script did show it."""
MOST_PROOFS = 14
"""Fresh processes in which one that comes in half of its runs comes three times, but for once in 154."""
WRONG_VERDICT = 0.01
"""How probable a wrong verdict may be, for failures that come in a tenth of the runs or more (the simulation in the tests)."""
_TRIES, _MOST_TRIES, _FAILURES_WANTED = 10, 40, 4
_DOUBT, _SHARE_OF_LIMIT = 0.1, 0.7


def wants_more(failed: int, of: int) -> bool:
    """Whether a flaky original is to be run again to learn how often it fails: ten runs, and up to forty while it failed fewer than four
    times.
    """
    return of < _TRIES or (failed < _FAILURES_WANTED and of < _MOST_TRIES)


def needs_run(shown: Sequence[bool], looks: int = CONFIRMATIONS) -> bool:
    """Whether the original is to be run once more, after runs that showed the failure or did not: until it is confirmed, and how often it
    comes is known, or until `looks` runs have not shown it.
    """
    failed = sum(shown)
    return len(shown) < (CONFIRMATIONS if failed else looks) or (0 < failed < len(shown) and wants_more(failed, len(shown)))


def wants_proof(shown: int, of: int, *, sometimes: bool) -> bool:
    """Whether the proof of a failure goes on: three runs, and more only of one that does not always come, until it came three times.

    `sometimes`: that is known before, so that three runs without it do not end it.
    """
    return of < CONFIRMATIONS or (shown < CONFIRMATIONS and (shown > 0 or sometimes) and of < MOST_PROOFS)


def is_proven(shown: int, of: int) -> bool:
    """Whether a failure is proven by so many runs: it came in all, or three times among others."""
    return shown == of > 0 or shown >= CONFIRMATIONS


def repeats_for(failed: int, of: int) -> int:
    """After how many passing runs a candidate counts as passing, when the original failed `failed` times in `of` runs."""
    if failed >= of:
        return 1
    share = _lowest_share(failed, of)
    return max(1, math.ceil(math.log(WRONG_VERDICT * _SHARE_OF_LIMIT) / math.log(1 - share)))


def _lowest_share(failed: int, of: int) -> float:
    """The share of failing runs below which so many failures would come with a probability of less than `_DOUBT`."""
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        at_least = sum(math.comb(of, count) * middle**count * (1 - middle) ** (of - count) for count in range(failed, of + 1))
        low, high = (middle, high) if at_least < _DOUBT else (low, middle)
    return max(high, 1e-6)
