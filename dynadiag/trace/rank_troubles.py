"""What is odd about ranks besides what they compiled: missing, restarted, died, cut, late, other clocks. Each with its evidence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from dynadiag.model.digest import Digest, RankGroup, RankTrouble, TroubleKind, rank_numbers

_MOST_TOLD = 20
_LEAST_LATE_S = 10.0
_LEAST_OVER_S = 5.0
_STEADY = 0.1
_LEAST_FIRST_S = 0.1  # less is shown as 0.0 or says nothing
_LEAST_COMMON = 3
_MOST_MISSING = 1_000_000


def troubles_of(
    ranks: Mapping[int, Digest], every: Mapping[int, Sequence[Digest]], groups: Sequence[RankGroup], own: Sequence[str]
) -> tuple[RankTrouble, ...]:
    """All of them, in a fixed order; of one kind the first few by name and the others by number."""
    found = [
        *_missing(ranks),
        *_several(every),
        *_ended(ranks, groups),
        *_times(ranks, groups),
        *_versions(ranks),
        *_unrelated(ranks, groups),
    ]
    if own:
        more = f" and {len(own) - 3} more" if len(own) > 3 else ""
        found.append(
            RankTrouble(
                kind="own_value",
                ranks=(),
                text=f"Guards on {', '.join(own[:3])}{more} have another value on nearly every rank; the groups leave these values out.",
            )
        )
    shown: list[RankTrouble] = []
    kinds: dict[TroubleKind, list[RankTrouble]] = {}
    for rank_trouble in found:
        kinds.setdefault(rank_trouble.kind, []).append(rank_trouble)
    for kind, rows in kinds.items():
        shown += rows[:_MOST_TOLD]
        if len(rows) > _MOST_TOLD:
            rest = tuple(sorted({rank for row in rows[_MOST_TOLD:] for rank in row.ranks}))
            shown.append(RankTrouble(kind=kind, ranks=rest, text=f"The same holds for {len(rest):,} more ranks."))
    return tuple(shown)


def _missing(ranks: Mapping[int, Digest]) -> Iterator[RankTrouble]:
    sizes = {digest.world_size for digest in ranks.values() if digest.world_size is not None}
    size = max(sizes, default=0)
    last = max(size - 1, max(ranks))
    if last > _MOST_MISSING:
        return
    absent = tuple(rank for rank in range(last + 1) if rank not in ranks)
    if absent:
        basis = f"WORLD_SIZE is {size:,}" if size > max(ranks) else f"the highest rank is {max(ranks):,}"
        yield RankTrouble(kind="missing", ranks=absent, text=f"No log of {_named(absent)}: {len(ranks):,} ranks have one, and {basis}.")


def _several(every: Mapping[int, Sequence[Digest]]) -> Iterator[RankTrouble]:
    """Ranks with more than one log. A launcher restarts all ranks together, so those of one kind are told in one sentence."""
    found: dict[TroubleKind, list[tuple[int, str]]] = {}
    for rank, roots in every.items():
        for after_at in range(1, len(roots)):  # no pairwise in Python 3.9
            before, after = roots[after_at - 1], roots[after_at]
            over = before.ended is not None and after.began is not None and after.began < before.ended
            found.setdefault("doubled" if over else "restarted", []).append((rank, f"{_name(before.log)} and {_name(after.log)}"))
    for kind, pairs in found.items():
        ranks = tuple(dict.fromkeys(rank for rank, _ in pairs))
        names = pairs[0][1] if len(pairs) == 1 else f"of rank {ranks[0]} {pairs[0][1]}"
        compared = "The first one is compared." if len(ranks) == 1 else "The first one of each is compared."
        if kind == "restarted":
            were = "was" if len(ranks) == 1 else "were"
            logs = f"{names} follow each other" if len(pairs) == 1 else f"logs follow each other ({names})"
            text = f"{_named(ranks).capitalize()} {were} restarted: {logs}. {compared}"
        else:
            text = f"Logs of {_named(ranks)} overlap in time ({names}): two jobs in one folder, or a number given twice. {compared}"
        yield RankTrouble(kind=kind, ranks=ranks, text=text)


def _ended(ranks: Mapping[int, Digest], groups: Sequence[RankGroup]) -> Iterator[RankTrouble]:
    """In order of time, by the clocks of the logs: of several that ended in some way the first may be the cause of the others."""
    ends = [element.ended for element in ranks.values() if element.ended is not None]
    finished = any(entry.finished for entry in ranks.values())
    base = ranks[groups[0].representative]
    alike = {rank for group in groups if group.first is not None and group.first.kind == "end" for rank in group.ranks}
    silent: list[int] = []
    for rank, digest in sorted(ranks.items(), key=lambda item: (item[1].ended or 0.0, item[0])):
        later = max(ends, default=0.0) - (digest.ended or 0.0)
        others = f"; the last record of another rank is {later:,.1f} s later" if later >= _LEAST_FIRST_S else ""
        at = f"after {len(digest.events):,} of {len(base.events):,} events" if len(digest.events) < len(base.events) else "at its end"
        if digest.error is not None:
            yield RankTrouble(kind="died", ranks=(rank,), text=f"Rank {rank} ended with an exception: {digest.error}{others}.")
        elif digest.cut_off:
            yield RankTrouble(kind="cut", ranks=(rank,), text=f"The log of rank {rank} is cut in the middle of a record, {at}{others}.")
        elif not digest.finished and (finished or digest.started_at is not None):  # logs of TORCH_TRACE have no record of an end
            silent.append(rank)
        elif rank in alike and later >= _LEAST_OVER_S:
            yield RankTrouble(kind="ended_early", ranks=(rank,), text=f"Rank {rank} stopped compiling {at}{others}.")
        elif not digest.events:
            yield RankTrouble(
                kind="empty", ranks=(rank,), text=f"Rank {rank} compiled nothing: its log has {digest.records:,} records and no frame."
            )
    yield from _silent(silent, ranks)


def _silent(silent: Sequence[int], ranks: Mapping[int, Digest]) -> Iterator[RankTrouble]:
    """The ranks, in order of time, whose logs of ours lack the record of a normal end."""
    if not silent:
        return
    who = f"log of rank {silent[0]} has" if len(silent) == 1 else f"logs of {_named(tuple(silent))} have"
    like = "" if len(silent) == len(ranks) else ", unlike others"
    how = "it was killed or still runs" if len(silent) == 1 else "they were killed or still run"
    first, second = (ranks[rank].ended or 0.0 for rank in (silent[0], silent[min(1, len(silent) - 1)]))
    told = f" Rank {silent[0]} was the first to end, {second - first:,.1f} s before the next." if second - first >= _LEAST_FIRST_S else ""
    yield RankTrouble(kind="died", ranks=tuple(sorted(silent)), text=f"The {who} no normal end{like}: {how}.{told}")


def _times(ranks: Mapping[int, Digest], groups: Sequence[RankGroup]) -> Iterator[RankTrouble]:
    """Ranks whose events come later or earlier than those of the others: by a steady time, or only at the beginning.

    The others are all that have the event in common with the largest group, which may be the late rank and one more.
    """
    base = ranks[groups[0].representative]
    number = len(base.times)
    if number < _LEAST_COMMON or len(ranks) < 3:
        return
    numbers = sorted({*groups[0].ranks[:: max(1, len(groups[0].ranks) // 64)], *[*ranks][:: max(1, len(ranks) // 64)]})
    sample = [(ranks[rank], _common(base, ranks[rank])) for rank in numbers]
    usual = [median(item.times[at] for item, common in sample if at < common) for at in range(number)]
    for rank, digest in ranks.items():
        common = _common(base, digest)
        if common < _LEAST_COMMON:
            continue
        offsets = [digest.times[at] - usual[at] for at in range(common)]
        middle = median(offsets)
        if abs(middle) >= _LEAST_LATE_S and max(offsets) - min(offsets) <= _STEADY * abs(middle):
            side = "later than" if middle > 0 else "earlier than"
            text = (
                f"All {common} common events of rank {rank} are {abs(middle):,.1f} s {side} those of the others: "
                "its clock differs, or it ran at another time."
            )
            yield RankTrouble(kind="clock", ranks=(rank,), text=text)
        elif offsets[0] >= _LEAST_LATE_S:
            yield RankTrouble(
                kind="late",
                ranks=(rank,),
                text=f"Rank {rank} began compiling {offsets[0]:,.1f} s after the others; at the last common event {offsets[-1]:,.1f} s.",
            )


def _common(base: Digest, digest: Digest) -> int:
    """How many events both begin with."""
    common = 0
    while common < min(len(base.times), len(digest.events)) and digest.events[common].mark == base.events[common].mark:
        common += 1
    return common


def _versions(ranks: Mapping[int, Digest]) -> Iterator[RankTrouble]:
    versions: dict[str, list[int]] = {}
    for rank, digest in ranks.items():
        if digest.torch is not None:
            versions.setdefault(digest.torch, []).append(rank)
    if len(versions) > 1:
        ordered = sorted(versions.items(), key=lambda item: (-len(item[1]), item[1]))
        text = ", ".join(f"{version}: {_named(tuple(numbers))}" for version, numbers in ordered[:_MOST_TOLD])
        yield RankTrouble(kind="versions", ranks=tuple(ordered[1][1]), text=f"Ranks run different versions of torch ({text}).")


def _unrelated(ranks: Mapping[int, Digest], groups: Sequence[RankGroup]) -> Iterator[RankTrouble]:
    first = groups[0].representative
    base = {event.mark for event in ranks[first].events}
    for group in groups[1:]:
        apart = base and group.events and group.first is not None and group.first.before == 0
        if apart and base.isdisjoint(event.mark for event in ranks[group.representative].events):
            text = f"Nothing that {_named(group.ranks)} compiled is like anything of rank {first}: logs of different programs?"
            yield RankTrouble(kind="unrelated", ranks=group.ranks, text=text)


def _named(ranks: tuple[int, ...]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {rank_numbers(ranks)}"


def _name(log: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in log.replace("\\", "/").rpartition("/")[2])[:120]
