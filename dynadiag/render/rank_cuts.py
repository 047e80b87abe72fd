"""Where a picture in ranks is cut into columns."""

from __future__ import annotations

from collections.abc import Sequence

from dynadiag.render.layout import BELOW, LINE
from dynadiag.render.picture import Picture

DRAWN_AT_A_CUT = 2
"""How many values go from one column to the next as lines; others are told in words."""

# What is as bad as how many pixels more: a link told in words, a panel cut in two.
IN_WORDS = 40.0
TORN = 30.0


def cut_ranks(picture: Picture, ranks: Sequence[Sequence[int]], count: int) -> list[list[int]] | None:
    """The rows in so many columns of about the same height, cut where few links cross and no panel is torn."""
    if len(ranks) < 2 * count:
        return None
    rank_of = {number: at for at, rank in enumerate(ranks) for number in rank}
    heights = [max(LINE + BELOW * (len(picture.rows[number].below) + 0.3) + 18 for number in rank) for rank in ranks]
    sums = [0.0]
    for height in heights:
        sums.append(sums[-1] + height)
    price = [0.0] * (len(ranks) + 1)
    for at in range(1, len(ranks)):
        crossing = {link.tail for link in picture.links if rank_of[link.tail] < at <= rank_of[link.head]}
        before, after = ({panel for r in part for n in r for panel in _panels_of(picture, n)} for part in (ranks[:at], ranks[at:]))
        price[at] = IN_WORDS * max(0, len(crossing) - DRAWN_AT_A_CUT) + TORN * len(before & after)
    best: dict[tuple[int, int], tuple[float, float, tuple[int, ...]]] = {(0, 0): (0.0, 0.0, ())}
    for part in range(1, count + 1):
        for end in range(part, len(ranks) + 1):
            choices = [
                (
                    max(best[part - 1, start][0], sums[end] - sums[start]),
                    best[part - 1, start][1] + price[end],
                    (*best[part - 1, start][2], end),
                )
                for start in range(part - 1, end)
                if (part - 1, start) in best
            ]
            best[part, end] = min(choices, key=lambda choice: (choice[0] + choice[1], choice[2]))
    ends = best[count, len(ranks)][2]
    return [[number for rank in ranks[start:end] for number in rank] for start, end in zip((0, *ends), ends, strict=False)]


def _panels_of(picture: Picture, number: int) -> tuple[int, ...]:
    row = picture.rows[number]
    return tuple(panel for panel in (row.outer, row.inner) if panel is not None)
