"""What is not the same on every rank: graph breaks, recompiles, graphs, options; and which rank differs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from dynadiag.facts.fingerprint import Subject, fingerprints
from dynadiag.facts.lookups import is_from_text
from dynadiag.facts.user_frames import own_frame, project_path, source_function
from dynadiag.facts.wording import frame_location, listed, plural, short_place
from dynadiag.model import codes
from dynadiag.model.clauses import Basis, Clause, Doubt, Effect, Happened
from dynadiag.model.digest import rank_numbers
from dynadiag.model.location import Location
from dynadiag.model.report import Cost, Finding, PassResult, RankDifference
from dynadiag.model.run import Frame, Process, Run
from dynadiag.passes.base import Priority
from dynadiag.passes.fallback_entries import named_frames
from dynadiag.passes.guard_text import parse_guard_code, parse_reason
from dynadiag.passes.stack_values import written

_Value = TypeVar("_Value")
_SHOWN = 3
_SINGLY = 64
_MOST_DIFFERENCES = 1000
_MOST_VALUES = 2_000_000  # of all ranks in all differences of a kind: 488 differences of 4,096 ranks
_MOST_NOTES = 20
_MOST_VARIANTS = 256
_LONGEST_ERROR = 200


@dataclass(frozen=True, slots=True)
class Item:
    """One countable thing that ranks are compared by: a key without ids or line-independent numbers, its name and its place."""

    key: tuple[str, ...]
    what: str
    where: Location | None


@dataclass(frozen=True, slots=True)
class Aspect:
    """One way in which ranks can differ: its code, the noun of its counts, and how to list its items."""

    code: str
    noun: str
    items: Callable[[Run], Iterable[tuple[int, Item]]]


def _all_were_logged(run: Run) -> bool:
    """Whether each rank of a text wrote breaks or recompiles, which torch prints where it was asked to: people paste what one rank says."""
    limited = {problem.frame for problem in run.problems if problem.kind == "recompile_limit"}
    told = [event.frame for event in run.breaks if event.source == "text"]
    told += [event.frame for event in run.recompiles if event.frame not in limited]
    processes = {frame.key.process for name in told if (frame := run.frame(name)) is not None}
    return all(process.index in processes for process in run.processes)


def find_rank_differences(run: Run) -> PassResult:
    """Every difference between the ranks of a run, grouped into one finding a kind; nothing when fewer than two ranks were recorded.

    A rank is a process with a rank number that no other process of the same rank started: DataLoader workers and compile workers
    inherit the number and are left out. Things are compared by file, function, line and reason, never by ids, which differ anyway.
    """
    if is_from_text(run) and not _all_were_logged(run):
        return PassResult()
    ranks, notes = main_processes(run)
    if len(ranks) < 2:
        return PassResult(notes=notes)
    most = max(1, min(_MOST_DIFFERENCES, _MOST_VALUES // len(everywhere(dict.fromkeys(ranks, ""), run))))
    found = [
        *((aspect.code, codes.title_of(aspect.code), *_differences(aspect, ranks, run, most)) for aspect in _ASPECTS),
        (codes.RANKS_VALUES, codes.title_of(codes.RANKS_VALUES), *guard_values(ranks, run, most)),
    ]
    notes = (*notes, *(_left_out(title, len(shown), number) for _, title, shown, number in found if number > len(shown)))
    more: Counter[str] = Counter()  # that are not shown, by code
    for code, _, shown, number in found:
        more[code] += number - len(shown)
    every = [
        *((code, rank_difference) for code, _, shown, _ in found for rank_difference in shown),
        *((codes.RANKS_SETTINGS, setting) for setting in _settings(ranks, run)),
        *((codes.RANK_CUT_OFF, item) for item in _cut_short(ranks, run)),
    ]
    numbered = [(code, replace(element, id=f"d{number}")) for number, (code, element) in enumerate(every, start=1)]
    return PassResult(ranks=tuple(entry for _, entry in numbered), findings=_findings(numbered, run, more), notes=notes)


def main_processes(run: Run) -> tuple[dict[int, Process], tuple[str, ...]]:
    """The process of each rank that was read in full, and a note for each that was started more than once."""
    found: dict[int, list[Process]] = {}
    for process in run.processes:
        if process.rank is not None and process.alike is None:
            found.setdefault(process.rank, []).append(process)
    ranks: dict[int, Process] = {}
    notes: list[str] = []
    for rank in sorted(found):
        pids = {process.pid for process in found[rank] if process.pid is not None}
        roots = [process for process in found[rank] if process.parent_pid is None or process.parent_pid not in pids] or found[rank]
        ranks[rank] = roots[0]
        if len(roots) > 1:
            notes.append(f"Rank {rank} was recorded {len(roots)} times (restarted?); the first record is compared with the other ranks.")
    more = (f"{len(notes) - _MOST_NOTES:,} more ranks were recorded several times.",) if len(notes) > _MOST_NOTES else ()
    return ranks, (*notes[:_MOST_NOTES], *more)


def _left_out(title: str, shown: int, number: int) -> str:
    return f"{title}: {shown:,} of {plural(number, 'difference')} are shown, each for every rank."


def _differences(aspect: Aspect, ranks: Mapping[int, Process], run: Run, most: int) -> tuple[list[RankDifference], int]:
    """The first `most` differences in one aspect, and how many there are."""
    of_process = {process.index: rank for rank, process in ranks.items()}
    counts: dict[tuple[str, ...], Counter[int]] = {}
    named: dict[tuple[str, ...], Item] = {}
    for process, item in aspect.items(run):
        if process in of_process:
            counts.setdefault(item.key, Counter())[of_process[process]] += 1
            named.setdefault(item.key, item)
    different = [key for key, count in counts.items() if len(count) < len(ranks) or len(set(count.values())) > 1]
    found = []
    for key in different[:most]:
        numbers = {rank: counts[key].get(rank, 0) for rank in ranks}
        words = {number: plural(number, aspect.noun) for number in set(numbers.values())}
        values = everywhere({rank: words[number] for rank, number in numbers.items()}, run)
        where = named[key].where
        found.append(RankDifference(id="", what=named[key].what, values=by_rank(values), odd_ranks=odd_ones(values), location=where))
    return found, len(different)


def everywhere(values: Mapping[int, _Value], run: Run) -> dict[int, _Value]:
    """The values of the ranks that were read in full, and of those that are alike to one of them and were not read."""
    read = {process.index: process.rank for process in run.processes if process.alike is None}
    unread = {
        process.rank: values[rank]
        for process in run.processes
        if process.rank is not None and process.alike is not None and (rank := read.get(process.alike)) is not None and rank in values
    }
    return dict(sorted({**unread, **values}.items())) if unread else dict(values)


def by_rank(values: Mapping[int, str]) -> dict[str, str]:
    """The value of each rank, as a report shows it: of many ranks those with the same value together."""
    if len(values) <= _SINGLY:
        return {f"rank {rank}": value for rank, value in values.items()}
    groups: dict[str, list[int]] = {}
    for rank, value in values.items():
        groups.setdefault(value, []).append(rank)
    shown = {f"rank{'s' if len(group) > 1 else ''} {rank_numbers(group)}": value for value, group in list(groups.items())[:_SINGLY]}
    return shown if len(groups) <= _SINGLY else {**shown, "others": f"{len(groups) - _SINGLY:,} other values"}


def odd_ones(values: Mapping[int, object]) -> tuple[int, ...]:
    """The ranks whose value is not that of the majority; empty when there is no majority, because then no rank is the one that differs."""
    texts = list(map(repr, values.values()))
    commonest, number = Counter(texts).most_common(1)[0]
    if number * 2 <= len(values):
        return ()
    return tuple(rank for rank, text in zip(values, texts, strict=True) if text != commonest)


def _breaks(run: Run) -> Iterable[tuple[int, Item]]:
    for event in run.breaks:
        frame = run.frame(event.frame)
        where = event.torch_frame or own_frame(event.stack, run)
        if frame is not None:
            reason = event.gb_id or event.gb_type
            yield frame.key.process, Item((reason, *_place_key(where, run)), f"graph break at {short_place(where)}: {event.gb_type}", where)


def _recompiles(run: Run) -> Iterable[tuple[int, Item]]:
    known = named_frames(run)
    for event in run.recompiles:
        frame = run.frame(event.frame)
        if frame is None:
            continue
        named = known(frame)
        guard = parse_reason(event.reasons[0]) if event.reasons else None
        cause = "" if guard is None or not guard.source else f" because of {guard.source}"
        where = frame_location(named)
        said = f" because of {written(guard.source, frame, {}).replace('`', '')}" if guard is not None and cause else ""
        yield frame.key.process, Item((*_place_key(where, run), cause), f"recompile of {_name(named)}{said}", where)


def _graphs(run: Run) -> Iterable[tuple[int, Item]]:
    for graph in run.graphs:
        frame = run.frame(graph.frame)
        if frame is not None and graph.kind == "dynamo" and graph.attempt >= frame.attempts - 1:
            where = frame_location(frame)
            yield frame.key.process, Item((*_place_key(where, run), frame.name or ""), f"graphs of {_name(frame)}", where)


def _outcomes(run: Run) -> Iterable[tuple[int, Item]]:
    known = named_frames(run)
    for frame in run.frames:
        if frame.outcome in ("skipped", "failed"):
            named = known(frame)
            where = frame_location(named)
            yield frame.key.process, Item((*_place_key(where, run), frame.outcome), f"{_name(named)} {frame.outcome}", where)


def _place_key(where: Location | None, run: Run) -> tuple[str, ...]:
    return ("",) if where is None else (project_path(where.file, run), str(where.line), source_function(where.function) or "")


def _name(frame: Frame) -> str:
    return f"{source_function(frame.name) or 'an unnamed frame'} ({short_place(frame_location(frame))})"


_ASPECTS = (
    Aspect(codes.RANKS_BREAK, "event", _breaks),
    Aspect(codes.RANKS_RECOMPILE, "recompile", _recompiles),
    Aspect(codes.RANKS_GRAPHS, "graph", _graphs),
    Aspect(codes.RANKS_GRAPHS, "frame", _outcomes),
)
_CONSEQUENCE = {
    codes.RANKS_BREAK: "A rank that breaks elsewhere runs different graphs; if they contain collectives, ranks can wait for each other.",
    codes.RANKS_RECOMPILE: "While one rank recompiles, the others wait for it at the next collective.",
    codes.RANKS_GRAPHS: "If collectives are compiled into graphs that only some ranks have, ranks can wait for each other.",
    codes.RANKS_SETTINGS: "",
    codes.RANKS_VALUES: "Each value is a constant in the code compiled there, so these ranks run different code.",
    codes.RANK_CUT_OFF: "",  # `_how_it_ended` says more
}


def _settings(ranks: Mapping[int, Process], run: Run) -> Iterable[RankDifference]:
    for what, of in (("torch version", _torch), ("options of torch", _options), ("device", lambda process: process.device)):
        values = everywhere({rank: of(process) for rank, process in ranks.items()}, run)
        if len({repr(value) for value in values.values() if value is not None}) > 1:
            shown = {rank: "not known" if value is None else str(value) for rank, value in values.items()}
            yield RankDifference(id="", what=what, values=by_rank(shown), odd_ranks=odd_ones(values))


def _torch(process: Process) -> str | None:
    return process.torch


def _options(process: Process) -> str | None:
    """All non-default options as one text, or None when they were not recorded."""
    areas = {area: values for area, values in process.config.items() if isinstance(values, Mapping)}
    if not areas:
        return None
    return ", ".join(f"{area}.{name}={value!r}" for area in sorted(areas) for name, value in sorted(areas[area].items())) or "all default"


def guard_values(ranks: Mapping[int, Process], run: Run, most: int = _MOST_DIFFERENCES) -> tuple[list[RankDifference], int]:
    """The first `most` differences in guarded values, and how many there are.

    A difference is a source on whose value the first compilation of one function is guarded differently on different ranks.

    Ranks that do not guard the source are left out. Where each rank has a value of its own (its number, its share of the data) none is odd.
    """
    of_process = {process.index: rank for rank, process in ranks.items()}
    first: dict[tuple[str, ...], dict[int, Frame]] = {}
    for frame in run.frames:
        if frame.guards is not None and frame.guards.values and frame.key.process in of_process:
            place = (*_place_key(frame_location(frame), run), frame.name or "")
            first.setdefault(place, {}).setdefault(of_process[frame.key.process], frame)
    own = {guard.source for code in _own_values(run) if (guard := parse_guard_code(code)) is not None}
    found: list[RankDifference] = []
    number = 0
    for frames in first.values():
        variants: dict[tuple[str, ...], list[int]] = {}
        for rank, frame in frames.items():
            variants.setdefault(() if frame.guards is None else frame.guards.values, []).append(rank)
        if len(variants) > 1:
            by_source = _guarded_differently(variants)
            number += len(by_source)
            for source, expected in list(by_source.items())[: most - len(found)]:
                values = dict(sorted((rank, value) for codes, value in expected.items() for rank in variants[codes]))
                if source not in own:
                    values = everywhere(values, run)
                frame = next(iter(frames.values()))
                what = f"value of `{source}` guarded in {_name(frame)}"
                found.append(
                    RankDifference(id="", what=what, values=by_rank(values), odd_ranks=odd_ones(values), location=frame_location(frame))
                )
    return found, number


def _own_values(run: Run) -> Iterable[str]:
    """Guards on what has another value on nearly every rank: that of a rank that was read says nothing about those alike to it."""
    return () if run.ranks is None else (f"{source} == 0" for source in run.ranks.own_values)


def _guarded_differently(variants: Mapping[tuple[str, ...], Sequence[int]]) -> dict[str, dict[tuple[str, ...], str]]:
    """The sources whose values differ between the variants of one function's guards, with the value of each variant that has it."""
    by_source: dict[str, dict[tuple[str, ...], str]] = {}
    for guards in list(variants)[:_MOST_VARIANTS]:
        for code in guards:
            guard = parse_guard_code(code)
            if guard is not None and guard.source and guard.expected is not None:
                by_source.setdefault(guard.source, {})[guards] = guard.expected
    return {source: values for source, values in by_source.items() if len(set(values.values())) > 1}


def _cut_short(ranks: Mapping[int, Process], run: Run) -> Iterable[RankDifference]:
    """A log that lacks the record of a normal end while another rank's has it; no log of torch's own has one, then nothing is said."""
    unread = {process.rank: process.finished for process in run.processes if process.rank is not None and process.alike is not None}
    ended = dict(sorted({**unread, **{rank: process.finished for rank, process in ranks.items()}}.items()))
    if any(ended.values()) and not all(ended.values()):
        values = {rank: "complete" if done else "cut short" for rank, done in ended.items()}
        yield RankDifference(
            id="", what="end of the log", values=by_rank(values), odd_ranks=tuple(rank for rank, done in ended.items() if not done)
        )


def _findings(numbered: Sequence[tuple[str, RankDifference]], run: Run, more: Mapping[str, int]) -> tuple[Finding, ...]:
    groups: dict[str, list[RankDifference]] = {}
    for code, rank_difference in numbered:
        groups.setdefault(code, []).append(rank_difference)
    cut = next((item.odd_ranks for code, item in numbered if code == codes.RANK_CUT_OFF), ())
    subjects = [Subject(code, group[0].location) for code, group in groups.items()]
    marks = fingerprints(subjects, run)
    return tuple(
        _finding(number, code, groups[code], mark, cut, more[code], run)
        for number, (code, mark) in enumerate(zip(groups, marks, strict=True), start=1)
    )


def _finding(number: int, code: str, group: Sequence[RankDifference], mark: str, cut: tuple[int, ...], more: int, run: Run) -> Finding:
    texts = [f"{one.what}: {', '.join(f'{rank}: {value}' for rank, value in one.values.items())}{_odd_text(one)}" for one in group]
    clauses: list[Clause] = [Happened(listed(texts, limit=_SHOWN, between="; "))]
    clauses.extend(_how_it_ended(run, cut) if code == codes.RANK_CUT_OFF else map(Effect, filter(None, (_CONSEQUENCE[code],))))
    if cut and code != codes.RANK_CUT_OFF:
        clauses.append(Basis(f"The log of rank {rank_numbers(cut)} ends early, which alone can explain smaller counts there"))
    return Finding(
        id=f"n{number}",
        fingerprint=mark,
        code=code,
        severity=codes.severity_of(code),
        title=_title(code, group),
        where=group[0].location,
        clauses=tuple(clauses),
        fix=(),
        cost=Cost(value=float(len(group) + more), unit="differences", basis="counted"),
        evidence=tuple(item.id for item in group),
        rank=(float(Priority.RANKS_DIFFER if code == codes.RANK_CUT_OFF else Priority.RANKS_APART), float(-len(group) - more)),
    )


def _how_it_ended(run: Run, cut: tuple[int, ...]) -> Iterator[Clause]:
    """Why logs of ranks may end early; an exception of another rank is its cause (torchrun ends the rest) or its effect (a collective)."""
    over = run.info.exit_status is not None
    many = len(cut) > 1
    it, its = ("They", "their") if many else ("It", "its")
    how = f"{it} {'were' if many else 'was'} killed{' or' if over else ','} exited with os._exit" + (
        "" if over else f" or {'are' if many else 'is'} still running"
    )
    yield Basis(f"{how}, so what happened there afterwards is not known and {its} counts are too small")
    rank_of = {process.index: process.rank for process in run.processes if process.rank is not None}
    raised = {rank_of[problem.process]: problem for problem in run.problems if problem.kind == "uncaught" and problem.process in rank_of}
    if raised:
        rank, first = next(iter(sorted(raised.items())))
        where = own_frame(first.stack, run)
        text = " ".join(first.text.split())[:_LONGEST_ERROR]
        others = f", and {plural(len(raised) - 1, 'more rank')} with one" if len(raised) > 1 else ""
        at = "" if where is None else f" at {short_place(where)}"
        yield Happened(f"Rank {rank} ended with an exception{at} ({text}){others}")
        yield Doubt(
            "Which happened first is not known: launchers such as torchrun end the other ranks, and collectives fail once a rank is gone"
        )


def _title(code: str, group: Sequence[RankDifference]) -> str:
    odd = sorted({rank for rank_difference in group for rank in rank_difference.odd_ranks})
    who = f": rank {', '.join(map(str, odd))} differs from the others" if len(odd) == 1 else ""
    return f"{codes.title_of(code)}{who}"


def _odd_text(rank_difference: RankDifference) -> str:
    if not rank_difference.odd_ranks or len(rank_difference.odd_ranks) == len(rank_difference.values):
        return ""
    return f" (odd: rank {rank_numbers(rank_difference.odd_ranks)})"
