"""Graph breaks: every site with its events, and one finding for each of the user's own lines that breaks."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from dynadiag.advice.graph_breaks import MOST_FIXES
from dynadiag.changes.break_context import leaves_out
from dynadiag.changes.calls import skipped_name
from dynadiag.changes.kinds import kind_of
from dynadiag.changes.train_step import OWN_BREAK
from dynadiag.facts.fingerprint import Subject, fingerprints
from dynadiag.facts.lookups import is_in_compiled_function, problems_by_frame
from dynadiag.facts.user_frames import of_last_run, resume_line, source_function
from dynadiag.facts.wording import excerpt, listed, rank_text, short_place, unique
from dynadiag.model import codes
from dynadiag.model.clauses import (
    Basis,
    Cause,
    Clause,
    Counted,
    Doubt,
    Effect,
    GraphsAround,
    Happened,
    LeftEager,
    ResumedIn,
    SameFor,
    StoppedAt,
    Unadvised,
)
from dynadiag.model.location import Location
from dynadiag.model.report import Advice, Cost, Finding, GraphBreak, PassResult, Severity
from dynadiag.model.run import Run
from dynadiag.passes.base import Priority
from dynadiag.passes.break_categories import HIGHER_ORDER, USER_INSERTED
from dynadiag.passes.break_costs import cost_notes
from dynadiag.passes.break_sites import break_code, break_sites, more_sites
from dynadiag.passes.compile_calls import CompileCalls
from dynadiag.passes.fallback_entries import fallback_entries, first_sentence
from dynadiag.passes.train_steps import (
    is_step_alone,
    is_train_step,
    joined_train_steps,
    train_step_advice,
    train_step_lines,
    train_step_main,
    train_step_title,
)
from dynadiag.source.line import dotted, parse_line

_EVIDENCE = 40
_REFUSED = "Backend compiler exception"
_RAISED = re.compile(r"^Exception: ?(.*?)(?:\nTraceback:|\Z)", re.MULTILINE | re.DOTALL)
_LONGEST_RAISED = 400
# A flag that only code behind a print read gave one more version of the function without the break (2.11 and 2.15).
_JOINS = (
    "without a graph break, the code before and after it is one graph: a change that only the code after it depends on may then recompile "
    "the whole function"
)


def find_graph_breaks(run: Run) -> PassResult:
    """All graph break sites of the run, and findings that group the sites behind one own line."""
    sites = break_sites(run)
    skips = {site: entry.id for entry in fallback_entries(run).shown for site in entry.breaks}
    groups: dict[tuple[object, ...], list[GraphBreak]] = {}
    for site in sites:
        groups.setdefault(_own_line(site), []).append(site)
    ordered = joined_train_steps(run, [cause for group in groups.values() for cause in _by_cause(group)])
    beside: dict[tuple[object, ...], list[str]] = {}
    for causes in ordered:
        beside.setdefault(_own_line(causes[0]), []).append(_code(causes))
    subjects = [Subject(_code(group), _where(group)) for group in ordered]
    no_graph = not run.graphs and any(frame.metrics is not None for frame in run.frames)  # a text log need not show its graphs
    findings = tuple(
        _finding(run, group, name, skips, beside[_own_line(group[0])], no_graph=no_graph)
        for group, name in zip(ordered, fingerprints(subjects, run), strict=True)
    )
    more, events = more_sites(run)
    left = {"graph break sites": more, "graph break events": events} if more else {}
    said = (f"{len(sites):,} of {len(sites) + more:,} graph break sites are shown; the others are only counted",) if more else ()
    joins = any(site.resume_frames and any(kind_of(change.slug).joins for change in site.advice) for site in sites)
    notes = (*cost_notes(run), *((_JOINS,) if joins else ()), *said)
    return PassResult(graph_breaks=sites, findings=findings, notes=notes, left_out=left)


def _own_line(site: GraphBreak) -> tuple[object, ...]:
    """Sites inside libraries are grouped under the user line that led there; a break on the user's own line stands alone."""
    own = site.own_frame
    return ("site", site.id) if own is None or own.line is None else (own.file, own.line)


def _by_cause(group: Sequence[GraphBreak]) -> list[list[GraphBreak]]:
    """The sites behind one own line, those of one cause together: torch's id and the function that it refused, or one change that ends all.

    A break on the line itself stands alone, with those of its id that the same changes end. The words of an advice that is the same for
    several sites name none of them: it cures all.
    """
    cures = Counter(_cure(site) for site in group)
    own = {(site.gb_id, _changes(site)) for site in group if _is_own(site) and site.advice}
    found: dict[tuple[object, ...], list[GraphBreak]] = {}
    for site in group:
        cure = _cure(site)
        refused = re.search(r"qualname: ([\w.<>]+)", site.context or "")
        name = (site.gb_id or site.reason, refused[1] if refused else None)
        as_own = _is_own(site) or (site.gb_id, _changes(site)) in own
        key = ("own",) if as_own else ("cure", cure) if cure is not None and cures[cure] > 1 else name
        found.setdefault(key, []).append(site)
    return list(found.values())


def _cure(site: GraphBreak) -> tuple[str, str] | None:
    first = site.advice[0] if site.advice else None
    return None if first is None or _is_own(site) else (first.slug, first.text)


def _changes(site: GraphBreak) -> tuple[tuple[str, str | None, str | None], ...]:
    return tuple((advice.slug, advice.before, advice.after) for advice in site.advice)


def _main(group: Sequence[GraphBreak]) -> GraphBreak:
    """The site that names the finding: one that left a frame eager, else the one with most events."""
    if is_train_step(group) and not any(site.fullgraph for site in group):
        return train_step_main(group)
    return min(group, key=lambda site: (not site.fullgraph, not site.skipped_frames, -site.events))


def _code(group: Sequence[GraphBreak]) -> str:
    return codes.TRAIN_STEP if is_train_step(group) else break_code(_main(group))


def _where(group: Sequence[GraphBreak]) -> Location | None:
    return _main(group).own_frame or _main(group).torch_frame


def _finding(
    run: Run, group: Sequence[GraphBreak], fingerprint: str, skips: dict[str, str], beside: Sequence[str], *, no_graph: bool
) -> Finding:
    fix = _fix(group)
    return Finding(
        id="",
        fingerprint=fingerprint,
        code=_code(group),
        severity="error" if any(site.fullgraph for site in group) else _severity(group),
        title=_title(run, group),
        where=_where(group),
        clauses=tuple(_clauses(run, group, beside, fix, no_graph=no_graph)),
        fix=fix,
        cost=_cost(group),
        evidence=_evidence(group, skips),
        rank=_rank(group),
    )


def _severity(group: Sequence[GraphBreak]) -> Severity:
    meant = all(site.category == USER_INSERTED and not site.skipped_frames for site in group)
    return "note" if meant or is_step_alone(group) or all(site.unadvised == OWN_BREAK for site in group) else "warning"


def _rank(group: Sequence[GraphBreak]) -> tuple[float, ...]:
    """Class, then milliseconds (at least, at most), then frames left eager, then events: the numbers that `why` and `cost` show."""
    eager = len(unique(frame for site in group for frame in site.skipped_frames))
    measured, most = _measured_ms(group), _most_ms(group)
    kind = Priority.FAILED if any(site.fullgraph for site in group) else Priority.RAN_EAGER if eager else Priority.GRAPH_BREAK
    return float(kind), -(measured or 0.0), -(most or measured or 0.0), -float(eager), -float(sum(site.events for site in group))


def _measured_ms(group: Sequence[GraphBreak]) -> float | None:
    known = [site.cost for site in group if site.cost is not None]
    if not known:
        return None
    # What calls gain without several breaks is no sum: one wait may stand for another.
    return max(cost.value for cost in known) if any(cost.high is not None for cost in known) else sum(cost.value for cost in known)


def _cost(group: Sequence[GraphBreak]) -> Cost:
    measured = _measured_ms(group)
    events = sum(site.events for site in group)
    if measured is None:
        return Cost(value=float(events), unit="event" if events == 1 else "events", basis="counted", remark="break records")
    known = [site.cost for site in group if site.cost is not None]
    low, high = round(measured, 4), _most_ms(group)
    return replace(known[0], value=low, low=None if high is None else low, high=high)


def _most_ms(group: Sequence[GraphBreak]) -> float | None:
    """What calls gain at most without these breaks, where only ends are known."""
    known = [site.cost for site in group if site.cost is not None]
    if all(cost.high is None for cost in known):
        return None
    return round(sum(cost.value if cost.high is None else cost.high for cost in known), 4)


def _title(run: Run, group: Sequence[GraphBreak]) -> str:
    main = _main(group)
    if is_train_step(group) and not main.fullgraph:
        return train_step_title(run, group)
    if main.fullgraph:
        return f"Compilation failed: graph break {_where_forbidden(run, main)} ({main.category}: {_short(main.reason)})"
    eager = unique(frame for site in group for frame in site.skipped_frames)
    if eager:
        return f"{_function(run, eager[0])} runs eagerly: a graph break that Dynamo cannot resume from ({_kind(main, ': ')})"
    reasons = unique(site.reason for site in group)
    if len(group) > 1 and len(reasons) == 1:
        return f"{len(group)} graph breaks with one cause: {_kind(main)}"
    if len(group) > 1:
        return f"{len(group)} graph breaks from one line ({listed(unique(site.category for site in group))})"
    return f"Graph break: {_kind(main)}"


def _kind(site: GraphBreak, between: str = "") -> str:
    """The category and torch's reason; once where both are the same words."""
    if site.category.casefold() == site.reason.casefold():
        return site.category
    reason = _short(site.reason) if site.gb_id is None else site.reason
    return f"{site.category}{between}{reason}" if between else f"{site.category} ({reason})"


def _short(reason: str) -> str:
    """Torch's words without its advice on `torch._check` and the second spelling of the expression (`GuardOnDataDependentSymNode`)."""
    return re.sub(
        r"^(?:Consider annotating your code using torch\._check\*\(\)\. )?(.+?)(?: \(unhinted: .*)?$", r"\1", reason, flags=re.DOTALL
    )


def _where_forbidden(run: Run, site: GraphBreak) -> str:
    """What makes this break an error, as far as the recorded calls of `torch.compile` tell."""
    if site.category == HIGHER_ORDER:
        return "inside a higher-order operator"
    frame = run.frame(site.frames[0])
    called = None if frame is None else CompileCalls.of_run(run).of(frame.key.process, frame)
    if called is None or called.fullgraph is None:
        return "where none is allowed (fullgraph=True or error_on_graph_break)"
    return "under fullgraph=True" if called.fullgraph else "under error_on_graph_break"


def _function(run: Run, frame_id: str, the: str = "The") -> str:
    frame = run.frame(frame_id)
    name, line = (None, None) if frame is None else (source_function(frame.name), resume_line(frame.name))
    name = name or ("A frame" if the.istitle() else "a frame")
    return name if line is None else f"{the} rest of {name} after line {line}"


def _clauses(run: Run, group: Sequence[GraphBreak], beside: Sequence[str], fix: Sequence[Advice], *, no_graph: bool) -> Iterator[Clause]:
    events, sites, together = sum(site.events for site in group), len(group), is_train_step(group)
    who = rank_text(run, (process for site in group for process in site.processes))
    yield Counted(events, "break event", sites, who=who, named=tuple(train_step_lines(group)) if together else ())
    if not together:
        yield from _inside(group)
    yield from (Happened(f"The back end raised {text}") for text in unique(filter(None, (_refusal(run, site) for site in group))))
    if not together:
        yield from (Cause(f"Dynamo does not trace into `{name}`") for name in unique(filter(None, map(_skipped, group))))
    yield from _consequence(run, group, no_graph=no_graph)
    if names := unique(name for site in group for name in _left_in_python(run, site)):
        are = "is" if len(names) == 1 else "are"
        yield Effect(f"{listed([f'`{name}`' for name in names])}, in which it breaks, {are} not compiled: the whole body runs eagerly")
    lines = "this line" if len({site.own_frame for site in group}) == 1 else "these lines"
    yield from map(Happened, unique(f"Also on {lines}: {listed(site.other_reasons)}" for site in group if site.other_reasons))
    if len(beside) > 1 and not together:
        others = listed(unique(beside), limit=8)
        yield Happened(
            f"This is one of {len(beside)} causes behind this line" + (f" ({others})" if len(set(beside)) > 1 else f", all {others}")
        )
    yield from map(Doubt, unique(doubt for site in group for doubt in site.doubts))
    if fix and any(site.skipped_frames for site in group):
        yield Effect("Once it is compiled, it may also be recompiled")
    if not fix:
        yield Unadvised(OWN_BREAK if is_step_alone(group) else listed(unique(site.unadvised for site in group if site.unadvised)))


def _skipped(site: GraphBreak) -> str | None:
    """The function that Dynamo does not enter, where no line that is shown names it: a builtin that a library calls, say."""
    name = skipped_name(site.context or "") if "marked as skipped" in site.reason else ""
    shown = " ".join(place.code or "" for place in (site.own_frame, site.torch_frame) if place is not None)
    hidden = name and re.search(rf"\b{re.escape(name.rpartition('.')[2])}\b", shown) is None
    return name if hidden else None


def _refusal(run: Run, site: GraphBreak) -> str | None:
    """What the back end raised: the break's own text has only `str(error)`, perhaps empty (GB0219, torch 2.15)."""
    said = _RAISED.search(site.context or "") if site.reason == _REFUSED else None
    if said is None:
        return None
    text = first_sentence(said[1]) if said[1].strip() else ""
    known = problems_by_frame(run)
    whole = [problem.text for frame in site.frames for problem in known.get(frame, ()) if problem.kind == "backend_error"]
    whole += [cause for frame in site.frames for cause in _causes(run).get(frame, ())]
    found = next((first_sentence(one) for one in whole if text in one), text)
    return excerpt(found.rstrip(".: "), _LONGEST_RAISED) or None


def _left_in_python(run: Run, site: GraphBreak) -> Iterator[str]:
    """The function in which it breaks, where the code behind the call was compiled and no frame of the function's own ever was.

    Dynamo compiles a function that is called after a break by itself; not so where the line hands it to something that is kept out of
    Dynamo (`torch.utils.checkpoint`).
    """
    place = site.torch_frame
    if not site.resume_frames or place is None or len(site.stack) < 2 or not _is_own(site):
        return
    name, line = source_function((place.function or "").rpartition(".")[2]), parse_line(site.stack[-2].code)
    handed = [argument for call in line.nodes if isinstance(call, ast.Call) for argument in call.args]
    given = any((dotted(argument) or "").rpartition(".")[2] == name for argument in handed)
    if name and given and not is_in_compiled_function(place, run):
        yield name


@of_last_run
def _causes(run: Run) -> Mapping[str, Sequence[str]]:
    """By frame the exceptions behind its breaks, without the modules of their classes."""
    found: dict[str, list[str]] = {}
    for event in run.breaks:
        if event.cause is not None:
            name, colon, said = event.cause.partition(": ")
            found.setdefault(event.frame, []).append(f"{name.rpartition('.')[2]}{colon}{said}")
    return found


def _inside(group: Sequence[GraphBreak]) -> Iterator[Clause]:
    """Where Dynamo really stopped, when that is inside a library."""
    library = [(site.torch_frame, _is_reached(site)) for site in group if site.torch_frame is not None and not _is_own(site)]
    for inside in (True, False):
        if places := tuple(place for place, reached in library if reached is inside):
            yield StoppedAt(places, inside)


def _is_reached(site: GraphBreak) -> bool:
    """Whether the user's line leads to the break; else it is where the user excludes the function that a library calls."""
    own = site.own_frame
    return own is None or own.line is None or any((place.file, place.line) == (own.file, own.line) for place in site.stack)


def _is_own(site: GraphBreak) -> bool:
    own, place = site.own_frame, site.torch_frame
    return own is not None and place is not None and (own.file, own.line) == (place.file, place.line)


def _consequence(run: Run, group: Sequence[GraphBreak], *, no_graph: bool) -> Iterator[Clause]:
    eager = unique(frame for site in group for frame in site.skipped_frames)
    skip = next((site.skip_reason for site in group if site.skip_reason), None)
    if eager:
        yield LeftEager(unique(_function(run, frame, the="the") for frame in eager), "" if skip is None else skip.partition(": ")[0])
    before, after = _ids(group, "graphs_before"), _ids(group, "graphs_after")
    if is_train_step(group) or before or after:
        yield GraphsAround(before, after, between=is_train_step(group))
    resumed = unique(frame for site in group for frame in site.resume_frames)
    compiled = [frame for frame in resumed if (found := run.frame(frame)) is None or found.outcome in ("compiled", "broke")]
    left = [frame for frame in resumed if frame not in compiled and frame not in eager]
    if compiled or left:
        yield ResumedIn(len(compiled), len(left))
    if all(site.cached for site in group):
        yield Basis("This break was replayed from a compile cache")
    if no_graph:
        yield Effect("No graph was captured in the whole run, so no operation ran compiled")


def _ids(group: Sequence[GraphBreak], field: str) -> tuple[str, ...]:
    return unique(item for site in group for item in getattr(site, field))


def _fix(group: Sequence[GraphBreak]) -> tuple[Advice, ...]:
    """The advice of all sites, the main site's first, each once."""
    if is_train_step(group):
        return train_step_advice(group)
    if is_step_alone(group):
        return ()
    main = _main(group)
    return merged_fixes(sorted(group, key=lambda site: site is not main))


def _evidence(group: Sequence[GraphBreak], skips: dict[str, str]) -> tuple[str, ...]:
    main = _main(group)
    breaks = [site.id for site in sorted(group, key=lambda site: site is not main)]
    fallbacks = [skips[site.id] for site in group if site.id in skips]
    others = [name for field in ("skipped_frames", "frames", "graphs_before", "graphs_after") for name in _ids(group, field)]
    return unique((*breaks, *fallbacks, *others))[:_EVIDENCE]


def merged_fixes(sites: Sequence[GraphBreak]) -> tuple[Advice, ...]:
    """The advice of all sites, two at most; a setting that serves several lines is told once, with the other lines named.

    What cures a site that nothing before it cures is needed as well.
    """
    found: dict[tuple[object, ...], list[tuple[Advice, GraphBreak]]] = {}
    for site in sites:
        for advice in site.advice:
            found.setdefault(advice.change, []).append((advice, site))
    fixes: list[Advice] = []
    cured: set[str] = set()
    for group in sorted(found.values(), key=lambda group: leaves_out(group[0][0]))[:MOST_FIXES]:
        cures = {site.id for _, site in group}
        fixes.append(replace(_told_once(group), follows=bool(fixes) and not cures & cured))
        cured |= cures
    return tuple(fixes)


def _told_once(group: Sequence[tuple[Advice, GraphBreak]]) -> Advice:
    advice = group[0][0]
    others = unique(short_place(site.torch_frame) for other, site in group if other.text != advice.text)
    return replace(advice, clauses=(*advice.clauses, SameFor(others))) if others else advice
