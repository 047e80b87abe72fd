"""Words for groups of ranks and for where they first differ."""

from __future__ import annotations

from dynadiag.facts.wording import plural
from dynadiag.model.digest import FirstDifference, RankGroup, rank_numbers

_DAY_S = 86_400


def group_in_words(group: RankGroup) -> str:
    """The ranks of a group: "rank 512", "ranks 0 to 511, 513 to 1023"."""
    return f"rank{'s' if len(group.ranks) > 1 else ''} {rank_numbers(group.ranks)}"


def difference_in_words(first: FirstDifference) -> str:
    """What happened, in which call, after how much that was the same, and what happened elsewhere."""
    here = _one_sentence(first.here) or "nothing more"
    there = _one_sentence(first.there) or ("the options of the others" if first.kind == "settings" else "nothing more")
    call = "" if first.call is None else f" in call {first.call:,}"
    if first.kind == "settings":
        return f"{here} instead of {there}"
    at = "" if not first.at else f", at {_clock(first.at)}"
    return f"{here}{call}, where the others have {there} (after {plural(first.before, 'equal event')}{at})"


def _one_sentence(text: str | None) -> str:
    """Torch's words of a guard that failed: "size mismatch at index 0. expected 8, actual 7"."""
    return (text or "").replace(". expected ", ": expected ")


def _clock(at: float) -> str:
    seconds = int(at % _DAY_S)
    return f"{seconds // 3600:02}:{seconds % 3600 // 60:02}:{seconds % 60:02}"
