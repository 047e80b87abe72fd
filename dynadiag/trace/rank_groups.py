"""Groups ranks by their digests, finds where each group first differs from the largest one, and what else is odd about ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from statistics import median

from dynadiag.digests.texts import graph_lines, guard_lines, mark_of, short_path
from dynadiag.errors import UnreadableInputError
from dynadiag.model.digest import (
    COLLECTIVES,
    Digest,
    DigestEvent,
    FirstDifference,
    RankComparison,
    RankGroup,
    RankTrouble,
    TroubleKind,
    rank_numbers,
)
from dynadiag.model.location import PayloadRef
from dynadiag.trace.payloads import read_payload
from dynadiag.trace.values import BadRecordError, as_dict, as_text, parse_json

_MOST_GROUPS_TOLD = 64
_MOST_FRAMES = 400
_MOST_LINES = 2
_MOST_SOURCES = 3
_LONGEST_LINE = 200


def main_digests(digests: Iterable[Digest]) -> tuple[dict[int, Digest], dict[int, list[Digest]]]:
    """The digest that each rank is compared by, and all main ones of each rank, in the order in which they began.

    Children of a rank (DataLoader workers) inherit its number and are left out. Of several records of one rank the first is compared: it
    ran beside those of the others.
    """
    found: dict[int, list[Digest]] = {}
    for digest in digests:
        if digest.process.rank is not None:
            found.setdefault(digest.process.rank, []).append(digest)
    every: dict[int, list[Digest]] = {}
    for rank in sorted(found):
        pids = {item.process.pid for item in found[rank] if item.process.pid is not None}
        roots = [item for item in found[rank] if item.process.parent_pid is None or item.process.parent_pid not in pids] or found[rank]
        every[rank] = sorted(roots, key=lambda entry: (entry.began or 0.0, entry.log, entry.process.pid or 0))
    return {rank: roots[0] for rank, roots in every.items()}, every


def compared(digests: Iterable[Digest]) -> RankComparison | None:
    """The ranks in groups, the largest first, each with its first difference; None for fewer than two ranks."""
    ranks, every = main_digests(digests)
    if len(ranks) < 2:
        return None
    own, sentences = _own_values(ranks)
    by_mark: dict[str, list[int]] = {}
    contested = _contested(ranks)
    for rank, digest in ranks.items():
        by_mark.setdefault(_mark(digest, own, contested), []).append(rank)
    ordered = sorted(by_mark.items(), key=lambda item: (not ranks[item[1][0]].events, -len(item[1]), item[1]))
    base = ranks[ordered[0][1][0]]
    groups = tuple(_group(mark, members, ranks, base, own, told=at < _MOST_GROUPS_TOLD) for at, (mark, members) in enumerate(ordered))
    return RankComparison(
        groups=groups,
        troubles=troubles_of(ranks, every, groups, sentences),
        ranks=len(ranks),
        events=sum(len(element.events) for element in ranks.values()),
        own_values=tuple(sorted(own)),
        frames=_frames([ranks[group.representative] for group in groups], own),
    )


def _own_values(ranks: Mapping[int, Digest]) -> tuple[frozenset[str], list[str]]:
    """What is guarded with a value of its own on most ranks (its number, its share of the data), which tells nobody apart."""
    values: dict[str, Counter[str]] = {}
    is_number: dict[str, bool] = {}
    for rank, digest in ranks.items():
        for code in dict.fromkeys(code for event in digest.events for code in event.values):
            source, _, value = code.partition(" == ")
            values.setdefault(source, Counter())[value] += 1
            is_number[source] = is_number.get(source, True) and value == str(rank)
    own = [
        source
        for source, counts in values.items()
        if len(counts) > 1 and ((is_number[source] and counts.total() > 1) or (len(counts) > 2 and len(counts) * 2 >= counts.total()))
    ]
    return frozenset(own), [f"`{source}`{' (the number of the rank)' if is_number[source] else ''}" for source in own]


def _contested(ranks: Mapping[int, Digest]) -> frozenset[str]:
    """The marks of functions whose source is not the same on all ranks that recorded it: which functions a rank met says nothing."""
    found: dict[tuple[str, str], set[str]] = {}
    for digest in ranks.values():
        for event in digest.events:
            if event.kind == "source":
                found.setdefault((event.what, short_path(event.file)), set()).add(event.mark)
    return frozenset(mark for marks in found.values() if len(marks) > 1 for mark in marks)


def _mark(digest: Digest, own: frozenset[str], contested: frozenset[str]) -> str:
    settings = (digest.process.torch or "", digest.process.options or "", digest.process.device or "")
    order = str(_order(digest.process.groups))
    events = (event for event in digest.events if event.kind != "source" or event.mark in contested)
    return mark_of(*settings, order, *(text for event in events for text in _key(event, own)), str(digest.left_out))


def _order(groups: Sequence[str]) -> list[int]:
    """The order in which process groups are used, by numbers that ranks of other groups of the same kind share.

    torch names groups by a counter that is the same on all ranks (`_process_group_name`, torch/distributed/distributed_c10d.py, 2.6 to
    2.15), so that groups made one after the other keep their order. A hash (`use_local_synchronization`) says nothing of it.
    """
    counted = sorted((name for name in groups if name.isdigit()), key=int)
    return [counted.index(name) if name.isdigit() else -1 for name in groups]


def _key(event: DigestEvent, own: frozenset[str]) -> tuple[str, ...]:
    if not event.values:
        return (event.mark,)
    return (event.mark, *(code for code in event.values if code.partition(" == ")[0] not in own))


def _group(mark: str, members: list[int], ranks: Mapping[int, Digest], base: Digest, own: frozenset[str], *, told: bool) -> RankGroup:
    here = ranks[members[0]]
    first = _first(here, base, own) if told and here is not base else None
    ended = first is not None and first.kind != "settings" and None in (first.here, first.there)  # one just has no more
    sources, files = _sources(here, base) if told and here is not base else ((), 0)
    return RankGroup(
        mark=mark,
        ranks=tuple(members),
        representative=members[0],
        events=len(here.events),
        first=first,
        collectives=None if first is None or ended else _collectives(here, base),
        sources=sources,
        source_files=files,
    )


def _sources(here: Digest, there: Digest) -> tuple[tuple[FirstDifference, ...], int]:
    """The first functions of both whose source is not the same, and in how many files there are any: another checkout, say."""
    known: dict[tuple[str, str], int] = {}
    same = {event.mark for event in there.events if event.kind == "source"}
    for at, event in enumerate(there.events):
        if event.kind == "source":
            known.setdefault((event.what, short_path(event.file)), at)
    apart = [
        (at, known[key])
        for at, event in enumerate(here.events)
        if event.kind == "source" and event.mark not in same and (key := (event.what, short_path(event.file))) in known
    ]
    files = {here.events[at].file for at, _ in apart}
    return tuple(_source_difference(here, there, a, b) for a, b in apart[:_MOST_SOURCES]), len(files)


def _first(here: Digest, there: Digest, own: frozenset[str]) -> FirstDifference | None:
    """The first event that is not the same in both; of settings, what they are, since these were set before.

    Of other source `_sources` tells: None where nothing else differs.
    """
    for name, a, b in (("torch", here.process.torch, there.process.torch), ("device", here.process.device, there.process.device)):
        if a != b and here.events and there.events:
            return FirstDifference(kind="settings", here=f"{name} {a or 'not recorded'}", there=f"{name} {b or 'not recorded'}")
    if here.process.options != there.process.options and here.events and there.events:
        return FirstDifference(kind="settings", here="other options of torch", there=None)
    mine, its = ([at for at, event in enumerate(digest.events) if event.kind != "source"] for digest in (here, there))
    for number, (at, other) in enumerate(zip_longest(mine, its)):
        if at is None or other is None or _is_apart(here.events[at], there.events[other], own):
            found = _difference(here, there, len(here.events) if at is None else at, len(there.events) if other is None else other, own)
            return replace(found, before=number)
    return _group_order(here, there) or (None if _sources(here, there)[1] else _difference(here, there, 0, 0, own))


def _is_apart(event: DigestEvent, other: DigestEvent, own: frozenset[str]) -> bool:
    return event is not other and _key(event, own) != _key(other, own)


def _difference(here: Digest, there: Digest, a: int, b: int, own: frozenset[str]) -> FirstDifference:
    mine = here.events[a] if a < len(here.events) else None
    its = there.events[b] if b < len(there.events) else None
    shown = mine or its
    texts = _texts(here, there, a, b, own)
    return FirstDifference(
        kind="end" if mine is None else "collective" if mine.kind in COLLECTIVES else mine.kind,
        here=texts[0],
        there=texts[1],
        file=None if shown is None else shown.file,
        line=None if shown is None else shown.line,
        call=(here.calls[a] or None) if mine is not None else None,
        before=a,
        at=here.times[a] if mine is not None else here.ended,
    )


def _texts(here: Digest, there: Digest, a: int, b: int, own: frozenset[str]) -> tuple[str | None, str | None]:
    """What happened in each; of two guards or graphs only what differs, out of the logs themselves."""
    mine = here.events[a] if a < len(here.events) else None
    its = there.events[b] if b < len(there.events) else None
    if mine is None or its is None or mine.kind != its.kind or mine.kind not in ("guards", "graph"):
        return None if mine is None else mine.what, None if its is None else its.what
    lines = [_lines(digest, at, mine.kind, own) for digest, at in ((here, a), (there, b))]
    texts = [
        f"{event.what}{': ' if only else ''}{'; '.join(only)}"
        for event, only in ((mine, _only(lines[0], lines[1])), (its, _only(lines[1], lines[0])))
    ]
    return texts[0], texts[1]


def _source_difference(here: Digest, there: Digest, a: int, b: int) -> FirstDifference:
    """The first line of two functions that is not the same, in both, with its place."""
    functions = [_function_at(digest, at) for digest, at in ((here, a), (there, b))]
    lines = [[] if function is None else function.split("\n") for function in functions]
    at = next((number for number, (item, other) in enumerate(zip_longest(*lines)) if item != other), 0)
    texts = []
    for event, rows in ((here.events[a], lines[0]), (there.events[b], lines[1])):
        line = f"`{rows[at].strip()[:_LONGEST_LINE]}`" if at < len(rows) else "nothing more" if rows else "other source"
        number = "" if event.line is None else f":{event.line + at}"
        texts.append(f"{line} in {event.what.rpartition(': ')[0]} ({(event.file or '?').rpartition('/')[2]}{number})")
    shown = here.events[a]
    return FirstDifference(
        kind="source",
        here=texts[0],
        there=texts[1],
        file=shown.file,
        line=None if shown.line is None else shown.line + at,
        before=a,
        at=here.times[a],
    )


def _function_at(digest: Digest, at: int) -> str | None:
    offset, length = digest.places[at]
    try:
        return as_text(as_dict(parse_json(read_payload(PayloadRef(digest.log, offset, length)), "not JSON")).get("text"))
    except (UnreadableInputError, BadRecordError):
        return None


def _lines(digest: Digest, at: int, kind: str, own: frozenset[str]) -> list[str]:
    offset, length = digest.places[at]
    try:
        payload = read_payload(PayloadRef(digest.log, offset, length)).encode("utf-8", "replace")
    except UnreadableInputError:
        return []
    found = graph_lines(payload) if kind == "graph" else guard_lines(b"\n" + payload)
    return [line for line in found if line.partition(" ")[2].partition(" == ")[0] not in own]


def _only(lines: Sequence[str], others: Sequence[str]) -> list[str]:
    """The first lines that the others do not have."""
    known = Counter(others)
    left: list[str] = []
    for line in lines:
        known[line] -= 1
        if known[line] < 0 and len(left) < _MOST_LINES:
            left.append(line[:_LONGEST_LINE])
    return left


def _collectives(here: Digest, there: Digest) -> FirstDifference | None:
    """Where the collectives alone first differ, layer by layer from the top; None where they are the same in the same order."""
    above = False
    for layer in COLLECTIVES:
        mine, its = ([at for at, event in enumerate(digest.events) if event.kind == layer] for digest in (here, there))
        if above and not (mine and its):
            continue  # a graph out of a cache need not have each layer
        for number, (a, b) in enumerate(zip_longest(mine, its)):
            first, second = (None if at is None else item.events[at] for item, at in ((here, a), (there, b)))
            if first is None or second is None or first.mark != second.mark:
                if _ended_before(here if first is None else there if second is None else None):
                    return None
                found = _difference(here, there, len(here.events) if a is None else a, len(there.events) if b is None else b, frozenset())
                return replace(found, kind="collective", before=number)
        above |= bool(mine)
    return _group_order(here, there)


def _ended_before(shorter: Digest | None) -> bool:
    """Whether a process has fewer collectives because it ended or its log does: it calls no others."""
    if shorter is None:
        return False
    return shorter.cut_off or shorter.process.error is not None or (shorter.process.started_at is not None and not shorter.process.finished)


def _group_order(here: Digest, there: Digest) -> FirstDifference | None:
    """The first collective that uses another process group than on the other rank, where the two have the same collectives otherwise."""
    orders = zip(_order(here.process.groups), _order(there.process.groups), strict=False)
    number = next((at for at, (a, b) in enumerate(orders) if a != b), None)
    if number is None:
        return None
    mentions = f"'group {number}'"
    at = next((at for at, event in enumerate(here.events) if event.kind in COLLECTIVES and mentions in event.what), None)
    if at is None or at >= len(there.events):
        return None
    found = _difference(here, there, at, at, frozenset())
    mine, its = (f"{digest.events[at].what} (process group {digest.process.groups[number]})" for digest in (here, there))
    return replace(found, kind="collective", here=mine, there=its, before=sum(event.kind in COLLECTIVES for event in here.events[:at]))


def _frames(representatives: Sequence[Digest], own: frozenset[str]) -> dict[str, tuple[int, ...]]:
    """By frame, which variant of its events each group has, numbered from 1 in the order of the groups; 0 where it has none."""
    found: dict[str, list[list[str]]] = {}
    number = min(len(representatives), _MOST_GROUPS_TOLD)
    for at, digest in enumerate(representatives[:number]):
        for event in digest.events:
            name = f"{event.what.partition(':')[0]} ({(event.file or '?').rpartition('/')[2]}:{event.line})"
            if name in found or len(found) < _MOST_FRAMES:
                found.setdefault(name, [[] for _ in range(number)])[at] += _key(event, own)
    numbers = {}
    for name, rows in found.items():
        variants = {(): 0} | {key: place for place, key in enumerate(dict.fromkeys(tuple(row) for row in rows if row), start=1)}
        numbers[name] = tuple(variants[tuple(row)] for row in rows)
    return numbers


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
    sizes = {digest.process.world_size for digest in ranks.values() if digest.process.world_size is not None}
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
    finished = any(entry.process.finished for entry in ranks.values())
    base = ranks[groups[0].representative]
    alike = {rank for group in groups if group.first is not None and group.first.kind == "end" for rank in group.ranks}
    silent: list[int] = []
    for rank, digest in sorted(ranks.items(), key=lambda item: (item[1].ended or 0.0, item[0])):
        later = max(ends, default=0.0) - (digest.ended or 0.0)
        others = f"; the last record of another rank is {later:,.1f} s later" if later >= _LEAST_FIRST_S else ""
        at = f"after {len(digest.events):,} of {len(base.events):,} events" if len(digest.events) < len(base.events) else "at its end"
        if digest.process.error is not None:
            yield RankTrouble(kind="died", ranks=(rank,), text=f"Rank {rank} ended with an exception: {digest.process.error}{others}.")
        elif digest.cut_off:
            yield RankTrouble(kind="cut", ranks=(rank,), text=f"The log of rank {rank} is cut in the middle of a record, {at}{others}.")
        # Logs of TORCH_TRACE have no record of an end.
        elif not digest.process.finished and (finished or digest.process.started_at is not None):
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
        if digest.process.torch is not None:
            versions.setdefault(digest.process.torch, []).append(rank)
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
