"""All graph breaks of a run as sites: the line of torch's user frame as one line of the user's reaches it; an event is one record of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from dynadiag.advice.graph_breaks import MOST_FIXES, advised
from dynadiag.changes.break_context import leaves_out
from dynadiag.facts.fingerprint import Subject, fingerprint, numbered
from dynadiag.facts.lookups import excluded_at, kept_graphs, process_of
from dynadiag.facts.user_frames import entry_stack, is_own_file, joined_stack, of_last_run, own_entry, own_frame, source_function
from dynadiag.facts.wording import plural, unique
from dynadiag.model import codes
from dynadiag.model.clauses import StillBreaks
from dynadiag.model.location import Location
from dynadiag.model.report import Advice, GraphBreak, distinct_advice
from dynadiag.model.run import BreakEvent, Frame, RegistryEntry, Run
from dynadiag.passes.break_categories import category
from dynadiag.passes.break_chain import resume_frames
from dynadiag.passes.break_costs import break_cost

MOST_SITES, MOST_REASONS = 5_000, 10
_Key = tuple[str, int | None, str | None, int | None]


@dataclass(frozen=True, slots=True)
class _Seen:
    """One event with what is worked out from it: the whole stack, torch's user frame with its source, the own line."""

    position: int
    event: BreakEvent
    frame: Frame | None
    stack: tuple[Location, ...]
    torch_frame: Location | None
    own: Location | None


@dataclass(frozen=True, slots=True)
class _Links:
    """What all sites look up: resume frames by event position, the graphs of each frame that Dynamo kept."""

    run: Run
    resumes: Mapping[int, tuple[str, ...]]
    graphs: Mapping[str, tuple[str, ...]]


def break_code(site: GraphBreak) -> str:
    """The code of a finding on this site: torch's id, or DB01 for a break that torch gave none."""
    return site.gb_id or codes.BREAK_WITHOUT_ID


@of_last_run
def break_sites(run: Run) -> tuple[GraphBreak, ...]:
    """The sites in the order in which they were first seen, with ids `b1`, `b2`, ...; the same run gives the same ids.

    Of a run with more than MOST_SITES the first ones; `more_sites` tells of the others.
    """
    ordered = [group for group in _groups(run).values() if group]
    mains = [_main(group) for group in ordered]
    subjects = [Subject(main.event.gb_id or codes.BREAK_WITHOUT_ID, main.torch_frame) for main in mains]
    prints = numbered([(fingerprint(subject, run), main.own or main.torch_frame) for subject, main in zip(subjects, mains, strict=True)])
    links = _Links(run, resume_frames(run), kept_graphs(run))
    return tuple(
        _site(f"b{number}", fingerprint, group, links)
        for number, (group, fingerprint) in enumerate(zip(ordered, prints, strict=True), start=1)
    )


def more_sites(run: Run) -> tuple[int, int]:
    """How many sites and events there are beyond the first MOST_SITES sites."""
    if len(run.breaks) <= MOST_SITES:
        return 0, 0
    groups = _groups(run)
    shown = sum(map(len, groups.values()))
    first_halves = _placed(run)
    return sum(not group for group in groups.values()), sum(not _first_half(event, first_halves) for event in run.breaks) - shown


def _groups(run: Run) -> dict[_Key, list[_Seen]]:
    """The events of each site; of those beyond MOST_SITES none is kept.

    Where the user's line is not known for some events of a line of a library, they belong to the only site that is.
    """
    placed = _placed(run)
    groups: dict[_Key, list[_Seen]] = {}
    reached: dict[tuple[str, int | None], set[_Key]] = {}
    for position, event in enumerate(run.breaks):
        if not _first_half(event, placed):
            item = _seen(position, event, run)
            key = _site_key(item)
            reached.setdefault(key[:2], set()).add(key)
            group = groups.setdefault(key, [])
            if group or len(groups) <= MOST_SITES:
                group.append(item)
    for keys in reached.values():
        known = [key for key in keys if key[3] is not None]
        if len(keys) > 1 and len(known) == 1 and groups[known[0]]:
            for key in keys - set(known):
                groups[known[0]] += groups.pop(key)
            groups[known[0]].sort(key=lambda element: element.position)
    return groups


def _placed(run: Run) -> set[tuple[str, int]]:
    return {(event.frame, event.attempt) for event in run.breaks if event.torch_frame is not None}


def _first_half(event: BreakEvent, placed: set[tuple[str, int]]) -> bool:
    """True for the first of two records of one break.

    `unimplemented_with_warning` (`torch/_dynamo/exc.py`, torch 2.15) writes a record without a place ("WON'T CONVERT ..."), then the error
    becomes a graph break with a record of its own.
    """
    return event.torch_frame is None and not event.stack and (event.frame, event.attempt) in placed


def _seen(position: int, event: BreakEvent, run: Run) -> _Seen:
    frame = run.frame(event.frame)
    stack = joined_stack(() if frame is None else entry_stack(frame), event.stack)
    torch_frame = _torch_frame(event, frame, stack)
    whole = bool(event.stack) and (torch_frame is None or (stack[-1].file, stack[-1].line) == (torch_frame.file, torch_frame.line))
    stack = stack if whole or torch_frame is None else (*stack, torch_frame)
    stack = tuple(Location(place.file, place.line, source_function(place.function), place.code) for place in stack)
    disabled = None if torch_frame is not None and is_own_file(torch_frame.file, run) else excluded_at(event, run)
    return _Seen(position, event, frame, stack, torch_frame, disabled or _own(event, frame, stack, run, whole=whole))


def _own(event: BreakEvent, frame: Frame | None, stack: Sequence[Location], run: Run, *, whole: bool) -> Location | None:
    """The own line of an event; without its line when the stack that was recorded does not reach down to torch's user frame."""
    if frame is not None and frame.callers:
        own = own_frame(stack, run)
        return own if own is None or whole or own in (*frame.callers, stack[-1]) else Location(own.file, None, own.function)
    raised = frame is not None and (event.source in ("exception", "metrics") or not event.stack)
    inner = stack[len(frame.stack) :] if frame is not None and raised and event.stack else stack[-1:] if raised else stack
    own = own_frame(inner, run)
    if own is None and raised and frame is not None:
        return own_entry(frame, run)
    if own is None or whole or raised or own == stack[-1]:
        return own
    return Location(own.file, None, own.function)


def _torch_frame(event: BreakEvent, frame: Frame | None, stack: Sequence[Location]) -> Location | None:
    """Torch's user frame, with function and source where the stack knows them; without one the frame that was being compiled."""
    place = event.torch_frame
    if place is None and event.stack:
        place = stack[-1]
    if place is None and frame is not None and frame.file is not None:
        place = Location(frame.file, frame.line, frame.name)
    if place is None:
        return None
    known = next((location for location in reversed(stack) if location.is_same_line(place)), place)
    if known.function is None and frame is not None and (frame.file, frame.line) == (place.file, place.line):
        known = Location(place.file, place.line, frame.name)
    return Location(place.file, place.line, source_function(place.function or known.function), place.code or known.code)


def _site_key(item: _Seen) -> _Key:
    own = (None, None) if item.own is None else (item.own.file, item.own.line)
    if item.torch_frame is None:
        return f"\0{item.event.gb_type}", None, None, None
    return item.torch_frame.file, item.torch_frame.line, *own


def _main(group: Sequence[_Seen]) -> _Seen:
    """The event that speaks for the site: the first one of its commonest break type."""
    counts = Counter(item.event.gb_type for item in group)
    commonest = max(counts.values())
    return next(element for element in group if counts[element.event.gb_type] == commonest)


def _site(identifier: str, fingerprint: str, group: Sequence[_Seen], links: _Links) -> GraphBreak:
    main, run = _main(group), links.run
    owns = _own_frames(group)
    resumed = unique(frame for item in group for frame in links.resumes.get(item.position, ()))
    frames = unique(element.event.frame for element in group)
    registered = _registered(main, run)
    advice, unadvised = _advice(group, run)
    others = tuple(reason for reason in unique(_reason(entry.event) for entry in group) if reason != _reason(main.event))
    return GraphBreak(
        id=identifier,
        fingerprint=fingerprint,
        gb_id=main.event.gb_id,
        category=category(main.event, run),
        reason=main.event.gb_type,
        explanation=main.event.explanation or (None if registered is None else registered.explanation),
        hints=main.event.hints or (() if registered is None else registered.hints),
        own_frame=owns[0] if owns else None,
        torch_frame=main.torch_frame,
        stack=main.stack,
        events=len(group),
        frames=frames,
        skipped_frames=unique(one.event.frame for one in group if _skipped(one)),
        resume_frames=resumed,
        graphs_before=unique(graph for frame in frames for graph in links.graphs.get(frame, ())),
        graphs_after=unique(graph for frame in resumed for graph in links.graphs.get(frame, ())),
        skip_reason=next((one.event.skip_reason for one in group if one.event.skip_reason), None),
        cached=all(one.event.cached for one in group),
        fullgraph=any(_raised(one) for one in group),
        processes=tuple(sorted({one.frame.key.process for one in group if one.frame is not None})),
        context=main.event.context,
        cost=break_cost(run, frames, resumed),
        advice=advice,
        other_reasons=others[:MOST_REASONS],
        own_frames=owns,
        doubts=_doubts(group, run, others),
        unadvised=unadvised,
    )


_BRANCH = "GB0170"


def _reason(event: BreakEvent) -> str:
    return event.gb_type if event.gb_id is None else f"{event.gb_id} {event.gb_type}"


def _own_frames(group: Sequence[_Seen]) -> tuple[Location, ...]:
    """The user line from which a site is reached, and the function where only that is known of some events."""
    places = Counter((item.own.file, item.own.line) for item in group if item.own is not None)
    first = {(element.own.file, element.own.line): element.own for element in reversed(group) if element.own is not None}
    return tuple(first[key] for key, _ in sorted(places.most_common(), key=lambda place: place[0][1] is None))


def _registered(item: _Seen, run: Run) -> RegistryEntry | None:
    process = None if item.frame is None else process_of(run, item.frame.key.process)
    return None if process is None else process.registry.get(item.event.gb_id or "")


def _skipped(item: _Seen) -> bool:
    if item.event.skips_frame or item.frame is None:
        return item.event.skips_frame
    last = item.event.attempt >= item.frame.attempts - 1
    return item.frame.outcome == "skipped" and last and not item.frame.broken_by_error


def _raised(item: _Seen) -> bool:
    """Under `fullgraph=True` the break is an exception: torch writes no break record and the frame fails."""
    return item.event.source in ("exception", "metrics") and item.frame is not None and item.frame.outcome == "failed"


def _advice(group: Iterable[_Seen], run: Run) -> tuple[tuple[Advice, ...], str | None]:
    """Advice for the first kinds of breaks on the line, each change once and two at most; else why there is none."""
    kinds: dict[str, _Seen] = {}
    for item in group:
        kinds.setdefault(_reason(item.event), item)
    said = [advised(element.event, run, element.own) for element in list(kinds.values())[: MOST_REASONS + 1]]
    found = [advice for fixes, _ in said for advice in fixes]
    of_branch = next((fixes for kind, (fixes, _) in zip(kinds, said, strict=False) if kind.startswith(_BRANCH)), None)
    if of_branch is not None:  # what the branch prints is another matter
        found = [
            entry if entry in of_branch else replace(entry, clauses=(*entry.clauses, StillBreaks(f"the branch itself ({_BRANCH})")))
            for entry in found
        ]
    kept = tuple(sorted(distinct_advice(found), key=leaves_out))[:MOST_FIXES]
    return kept, None if kept else next((reason for _, reason in said if reason), None)


def _doubts(group: Sequence[_Seen], run: Run, others: Sequence[str]) -> tuple[str, ...]:
    """What torch's records or we leave open about this site, in words."""
    doubts: list[str] = []
    if len(others) > MOST_REASONS:
        doubts.append(f"{plural(len(others) - MOST_REASONS, 'further reason')} on this line are only counted")
    if all(item.event.torch_frame is None and not item.event.stack for item in group):
        doubts.append("torch recorded no line for this break; the line shown is where its frame begins")
    if any(element.own is None for element in group):
        doubts.append("no line of your own code is on the recorded stack of every event")
    elif any(entry.own is not None and entry.own.line is None for entry in group):
        doubts.append("the recorded stack omits the innermost callers: only a calling function is known, not its line")
    return tuple(doubts)
