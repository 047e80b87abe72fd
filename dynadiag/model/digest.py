"""The digest of a process: what it compiled, in short and in order, by which ranks are compared before their logs are read in full."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from dynadiag.model.json_keys import Count

COLLECTIVES = ("collective", "collective_forward", "collective_backward", "collective_schedule")
EventKind = Literal[
    "frame",
    "source",
    "break",
    "recompile",
    "guards",
    "graph",
    "failure",
    "collective",
    "collective_forward",
    "collective_backward",
    "collective_schedule",
]
TroubleKind = Literal[
    "missing",
    "restarted",
    "doubled",
    "died",
    "cut",
    "ended_early",
    "late",
    "clock",
    "empty",
    "versions",
    "unrelated",
    "unread",
    "digest",
    "own_value",
]
_RUNS_SHOWN = 8


@dataclass(frozen=True, slots=True)
class DigestEvent:
    """One thing that happened while compiling, without ids, addresses, times and numbers of devices.

    Equal events have equal `mark`s, whatever Python, process or machine they come from: a BLAKE2b hash in hexadecimal. `values` are
    the codes of guards on constants and lengths, which are no part of the mark: a rank may have a value of its own. A collective has a
    kind for the layer whose graph it is in (`COLLECTIVES`), and a mark without its frame.
    """

    kind: EventKind
    mark: str
    what: str
    file: str | None = None
    line: int | None = None
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DigestedProcess:
    """What a log says of its process. `groups` are the names of the process groups in the order in which collectives use them, which the
    events number in that order; `options` is a mark of its settings, `error` the exception that ended it, as recorded.
    """

    pid: int | None
    rank: int | None
    parent_pid: int | None = None
    world_size: int | None = None
    torch: str | None = None
    python: str | None = None
    device: str | None = None
    options: str | None = None
    started_at: str | None = None
    finished: bool = False
    error: str | None = None
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Digest:
    """One process of one log: who it was, how the log ended, and its events in order.

    `times` holds seconds since the beginning of the year by that machine's clock, `places` where the payload of each event lies in the
    log (offset and length in bytes) and `calls` the number of the call that it happened in (0: not known), one for each event.
    `left_out` counts events beyond what a digest holds.
    """

    log: str
    process: DigestedProcess
    began: float | None = None
    ended: float | None = None
    records: int = 0
    cut_off: bool = False
    events: tuple[DigestEvent, ...] = ()
    times: tuple[float, ...] = ()
    places: tuple[tuple[int, int], ...] = ()
    calls: tuple[int, ...] = ()
    left_out: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstDifference:
    """Where the events of a group of ranks first differ from those of the largest group.

    `here` and `there` are what happened in the group and in the largest one; None where nothing followed. `before` is the number of equal
    events before; `at` the time in the group's log, in seconds of the year.
    """

    kind: Annotated[
        EventKind | Literal["end", "settings"],
        "frame, break, recompile, guards, graph, collective, failure, end or settings; readers tolerate others",
    ]
    here: str | None
    there: str | None
    file: str | None = None
    line: int | None = None
    call: Annotated[int | None, "the number, from 1, of the call of something compiled; null where that was not recorded"] = None
    before: Annotated[Count, "equal events before it"] = 0
    at: Annotated[float | None, "seconds since the beginning of the year, by the clock of that rank"] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RankGroup:
    """Ranks that compiled the same. `representative` is read in full; `first` is None for the largest group and where all are alike.

    `collectives` says what differs in the order or shapes of collectives, by itself; None where those are alike. `sources` are the first
    functions with another text than in the largest group, each at its first other line, and `source_files` the number of files with any.
    """

    mark: str
    ranks: tuple[int, ...]
    representative: int
    events: Count
    first: FirstDifference | None = None
    collectives: FirstDifference | None = None
    sources: tuple[FirstDifference, ...] = ()
    source_files: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTrouble:
    """Something about ranks that is no difference in what was compiled, with its evidence in one sentence."""

    kind: TroubleKind
    ranks: tuple[int, ...]
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RankComparison:
    """The ranks of a job: groups of equal ones, the largest first, and what else is odd.

    `frames` tells by the frame's name and place which variant of its events each group has, in the order of `groups`: numbered from 1 as
    they appear, 0 for none; of at most 64 groups. `read` is how many ranks
    were read in full; `own_values` are the sources that most ranks guard with a value of their own.
    """

    groups: tuple[RankGroup, ...]
    troubles: tuple[RankTrouble, ...] = ()
    ranks: int = 0
    read: Annotated[int, "ranks that were read in full; the counts of the report are theirs"] = 0
    events: int = 0
    own_values: tuple[str, ...] = ()
    frames: Annotated[
        Mapping[str, tuple[int, ...]],
        "by frame, which variant of its events each group has: numbered from 1 as they appear, 0 for none; of at most 64 groups",
    ] = field(default_factory=dict)


def rank_numbers(ranks: Iterable[int]) -> str:
    """Ranks in few words, however many: "0, 2 to 7, 9 and 1,000 more"."""
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    texts = [str(first) if first == last else f"{first} to {last}" if last > first + 1 else f"{first}, {last}" for first, last in runs]
    more = sum(last - first + 1 for first, last in runs[_RUNS_SHOWN:])
    return ", ".join(texts[:_RUNS_SHOWN]) + (f" and {more:,} more" if more else "")
