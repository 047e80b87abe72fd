"""What the report of `explain` lists after its findings: each section once, for every renderer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from dynadiag.facts.wording import difference_in_words
from dynadiag.model.digest import RankGroup, rank_numbers
from dynadiag.model.graph import Graph
from dynadiag.model.report import Fallback, FrameTime, GraphBreak, Mutation, RankDifference, Report, Transition
from dynadiag.render import mutation_words, parity_words, wording
from dynadiag.render.document import Cell, Column, Part, Section
from dynadiag.render.rank_matrix import rank_matrix
from dynadiag.render.sanitise import clean, clean_block

_VALUES_SHOWN = 6
_LONGEST_TROUBLE = 600
_PHASES_SHOWN = 6
_PHASES_OF_A_FRAME = 3
_REASONS_SHOWN = 3
_KINDS: Mapping[str, str] = {
    "dynamo": "Dynamo",
    "aot_joint": "AOT joint",
    "aot_forward": "AOT forward",
    "aot_backward": "AOT backward",
    "aot_inference": "AOT inference",
    "post_grad": "post-grad",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Detail:
    """How much the sections tell: paths relative to `base`, everything when `verbose`.

    `every_graph` lists those below Dynamo's too, `show_free` mutations that cost nothing; `mutation_advice` adds the advice on mutations
    that no finding names.
    """

    base: Path | None = None
    verbose: bool = False
    every_graph: bool = False
    show_free: bool = False
    mutation_advice: bool = False


def sections(report: Report, detail: Detail) -> Iterator[Section]:
    """The sections that have something to show, in their order."""
    yield from _recompiles(report, detail)
    yield from _fallbacks(report, detail)
    yield from mutations(report, detail)
    if report.parity is not None:
        yield Section(title="Parity", said=parity_words.verdict(report.parity), lines=tuple(parity_words.details(report.parity)))
    if report.replayed is not None:
        yield Section(title="Could happen", said=parity_words.could_happen(report.replayed))
    yield from _graphs(report, detail)
    yield from _compile_time(report, detail)
    yield from _ranks(report, detail)


def graph_breaks(report: Report, detail: Detail) -> Iterator[Section]:
    """Every site: a terminal tells them in the findings already."""

    def row(site: GraphBreak) -> tuple[Cell, ...]:
        torch_id = Part(site.gb_id, code=True) if site.gb_id else Part("none")
        events = f"{site.events:,}" + (" (cached)" if site.cached else "")
        own, torch_line = (Part(wording.place(location, detail.base), code=True) for location in (site.own_frame, site.torch_frame))
        return (
            (Part(site.id, code=True),),
            (torch_id,),
            (Part(site.category, 60),),
            (own,),
            (torch_line,),
            (Part(events),),
            (Part(site.reason, 160),),
        )

    headings = ("id", "torch id", "category", "own line", "torch's line", "events", "reason")
    if report.graph_breaks:
        yield Section(title="Graph breaks", columns=tuple(map(Column, headings)), items=report.graph_breaks, row=row)


def _recompiles(report: Report, detail: Detail) -> Iterator[Section]:
    """Which source took which values, and how far from the limit."""

    def row(transition: Transition) -> tuple[Cell, ...]:
        where = (Part(f"({wording.place(transition.own_frame, detail.base, function=False)})"),) if transition.own_frame else ()
        limit = "" if transition.limit is None else f" of {transition.limit}"
        entries = f"{transition.entries}{limit}" + (", limit hit" if transition.limit_hit else "")
        return (
            (Part(wording.frame_name(transition.frame_name), 80, code=True), *where),
            (Part(transition.source, 120, code=True),),
            values(transition),
            (Part(entries),),
        )

    def values(item: Transition) -> Cell:
        kept = [clean(wording.value_words(value), limit=60) for value in item.values]
        if len(kept) > _VALUES_SHOWN and not detail.verbose:
            kept = [*kept[: _VALUES_SHOWN - 2], "...", kept[-1]]
        if not kept:
            return (Part(item.why or item.kind),)
        return Part(" -> ".join(kept), code=True), *((Part("became dynamic", before=", "),) if item.became_dynamic else ())

    columns = Column("frame"), Column("changed"), Column("values"), Column("entries", fold=False)
    if report.transitions:
        yield Section(title="Recompiles", said=f"{report.summary.recompiles:,}", columns=columns, items=report.transitions, row=row)


def _fallbacks(report: Report, detail: Detail) -> Iterator[Section]:
    """What ran eagerly without being asked to: which frame, where, why, how often."""

    def row(fallback: Fallback) -> tuple[Cell, ...]:
        kind = wording.FALLBACK_KINDS.get(fallback.kind, fallback.kind)
        where = wording.place(fallback.own_frame, detail.base) if fallback.own_frame else wording.frame_label(report, fallback.frame)
        head = Part(kind, 60), Part(where, code=True, before=": "), Part(f"({wording.plural(fallback.events, 'event')})")
        return (Part(fallback.id, code=True),), head, (Part(fallback.reason, 400 if detail.verbose else 160),)

    rows = report.fallbacks
    if rows:
        said = wording.plural(len(rows), "fallback")
        columns = Column("id"), Column("fallback"), Column("reason")
        yield Section(title="Ran eagerly", said=said, columns=columns, items=rows, row=row, unit="fallback", as_entries=True)


def mutations(report: Report, detail: Detail) -> Iterator[Section]:
    """Those that cost something with their lines, effects and torch's refusal; the free ones in one line."""
    named = {name for finding in report.findings for name in finding.evidence}

    def row(mutation: Mutation) -> tuple[Cell, ...]:
        kind = "" if mutation.kind == "data" else f" [{mutation.kind}]"
        head = (
            Part(mutation.code, 10),
            Part(f"{mutation_words.source(mutation)}{kind}", 160, code=True),
            Part(mutation_words.effects(mutation), 400, before=": "),
        )
        advice = mutation.advice[:1] if detail.mutation_advice and mutation.id not in named else ()
        refusal = (Part(clean_block(mutation.refusal, limit=1200, lines=6).replace("\n", " "), 1200),) if mutation.refusal else ()
        doubts, fixes = (
            (Part("; ".join(clean(doubt, limit=240) for doubt in mutation.doubts), 720),) if mutation.doubts else (),
            tuple(Part(item.words, 400) for item in advice),
        )
        return (
            (Part(mutation.id, code=True),),
            head,
            (Part(mutation_words.places(mutation, detail.base), code=True),),
            refusal,
            doubts,
            fixes,
        )

    costly = [element for element in report.mutations if not mutation_words.is_folded(element)]
    free = [entry for entry in report.mutations if mutation_words.is_folded(entry)]
    facts = Column("torch says", label="torch: "), Column("uncertain", label="uncertain: "), Column("fix", label="fix: ")
    hint = "" if detail.show_free else " (--show-free lists them, as report.json does)"
    if report.mutations:
        yield Section(
            title="Mutations",
            said=mutation_words.verdict(report),
            columns=(Column("id"), Column("mutation"), Column("lines"), *facts),
            items=[*costly, *free] if detail.show_free else costly,
            row=row,
            unit="mutation",
            closing=f"{mutation_words.free_line(free)}{hint}" if free else "",
            as_entries=True,
        )


def _graphs(report: Report, detail: Detail) -> Iterator[Section]:
    """The captured graphs: how many of each kind, and the biggest of Dynamo's with their frame, size and most common ops."""
    graphs = report.run.graphs
    kinds = Counter(graph.kind for graph in graphs)
    ranked = sorted(graphs, key=lambda graph: (graph.kind != "dynamo", -(graph.nodes or 0), _position(graph)))
    if not (detail.verbose or detail.every_graph) and any(graph.kind == "dynamo" for graph in graphs):
        ranked = [graph for graph in ranked if graph.kind == "dynamo"]

    def row(graph: Graph) -> tuple[Cell, ...]:
        kind = () if graph.kind == "dynamo" else (Part(f"({_KINDS.get(graph.kind, graph.kind)})", 40),)
        nodes = "not known" if graph.nodes is None else f"{graph.nodes:,}"
        ops = wording.top_ops(graph.ops, 4 if detail.verbose else 3) or graph.why_not or ""
        frame = Part(wording.frame_label(report, graph.frame), 120, code=True)
        return (Part(graph.id, code=True),), (frame, *kind), (Part(nodes),), (Part(ops, 160),)

    if ranked:
        layers = sorted(kinds.items(), key=lambda pair: [*_KINDS, pair[0]].index(pair[0]))
        said = ", ".join(f"{count:,} {_KINDS.get(kind, clean(kind, limit=40))}" for kind, count in layers)
        columns = Column("id", fold=False), Column("frame"), Column("nodes", numeric=True), Column("most common ops")
        yield Section(title="Captured graphs", said=said, columns=columns, items=ranked, row=row, unit="graph")


def _position(graph: Graph) -> tuple[int, str]:
    return (int(graph.id[1:]) if graph.id[1:].isdecimal() else 0, graph.id)


def _result_words(result: str, count: int) -> str:
    """`2 hits`, `3 misses`: what a cache answered, in the number that it did."""
    return result if count == 1 else f"{result}es" if result.endswith("s") else f"{result}s"


def _compile_time(report: Report, detail: Detail) -> Iterator[Section]:
    """Compile time by phase and by frame, what restarts threw away, and the caches."""
    time = report.compile_time
    if time is None or time.total_s is None:
        return
    lines = []
    phases = sorted(time.phases.items(), key=lambda item: (-item[1], item[0]))[: None if detail.verbose else _PHASES_SHOWN]
    if phases:
        lines.append("by phase: " + ", ".join(f"{clean(name, limit=60)} {wording.seconds(value)}" for name, value in phases))
    if time.thrown_away_s:
        lines.append(f"thrown away by restarts: {wording.seconds(time.thrown_away_s)}")
    for cache, results in sorted(time.caches.items()):
        lines.append(
            f"cache {clean(cache, limit=60)}: "
            + ", ".join(f"{count:,} {_result_words(clean(result, limit=40), count)}" for result, count in sorted(results.items()))
        )
    reasons = Counter(event.why.strip().partition("\n")[0] for event in report.run.caches if event.result == "bypass" and event.why)
    lines += [f"not cached ({count}), torch's reason: {clean(reason, limit=200)}" for reason, count in reasons.most_common(_REASONS_SHOWN)]
    if any("miss" in results for results in time.caches.values()):
        lines.append("a first start misses; `dynadiag start` says why a later one does")
    elif 0 < report.summary.graphs <= time.caches.get("aotautograd", {}).get("hit", 0) and "inductor" not in time.phases:
        lines.append("every graph came from these caches: Dynamo traced again, and Inductor compiled nothing")

    def row(frame_time: FrameTime) -> tuple[Cell, ...]:
        longest = sorted(frame_time.phases.items(), key=lambda item: (-item[1], item[0]))[:_PHASES_OF_A_FRAME]
        said = ", ".join(f"{clean(name, limit=40)} {wording.seconds(value)}" for name, value in longest)
        lost = wording.seconds(frame_time.thrown_away_s) if frame_time.thrown_away_s else "-"
        frame = Part(wording.frame_label(report, frame_time.frame), 120, code=True)
        return (frame,), (Part(wording.seconds(frame_time.total_s)),), (Part(said),), (Part(lost),)

    columns = Column("frame"), Column("total", numeric=True), Column("longest phases"), Column("restarts", numeric=True)
    yield Section(
        title="Compile time",
        said=wording.seconds(time.total_s),
        lines=tuple(lines),
        columns=columns,
        items=sorted(time.frames, key=lambda element: -element.total_s),
        row=row,
        unit="frame",
    )


def _rank_groups(report: Report) -> Iterator[Section]:
    """Which ranks compiled the same, and where each other group first differs; nothing where all are alike and nothing is odd."""

    def row(rank_group: RankGroup) -> tuple[Cell, ...]:
        first = "-" if rank_group.first is None else difference_in_words(rank_group.first)
        return (
            (Part(rank_numbers(rank_group.ranks)),),
            (Part(f"{len(rank_group.ranks):,}"),),
            (Part(f"{rank_group.events:,}"),),
            (Part(first),),
        )

    found = report.run.ranks
    if found is None or (len(found.groups) == 1 and not found.troubles):
        return
    columns = Column("ranks"), Column("number"), Column("events of each"), Column("first difference from the largest group")
    said = wording.plural(len(found.groups), "group")
    told = tuple(clean(trouble.text, limit=_LONGEST_TROUBLE) for trouble in found.troubles)
    matrix = rank_matrix(found)
    pictures = () if matrix is None else ((matrix, "Which groups of ranks compiled each frame as the largest group did"),)
    yield Section(
        title="Groups of ranks", said=said, lines=told, columns=columns, items=found.groups, row=row, unit="group", pictures=pictures
    )


def _ranks(report: Report, detail: Detail) -> Iterator[Section]:
    """What differs between ranks, the value on each, and which rank differs from the majority."""

    def row(rank_difference: RankDifference) -> tuple[Cell, ...]:
        where = (Part(wording.place(rank_difference.location, detail.base), code=True),) if rank_difference.location else ()
        values = ", ".join(f"{clean(rank, limit=60)}: {clean(value, limit=80)}" for rank, value in rank_difference.values.items())
        odd = f"rank {rank_numbers(rank_difference.odd_ranks)}" if rank_difference.odd_ranks else "-"
        return (Part(rank_difference.id, 20, code=True),), (Part(rank_difference.what, 160),), where, (Part(values),), (Part(odd),)

    yield from _rank_groups(report)
    if report.ranks:
        columns = Column("id"), Column("what"), Column("where"), Column("values"), Column("differs")
        said = wording.plural(len(report.ranks), "difference")
        yield Section(title="Ranks", said=said, columns=columns, items=report.ranks, row=row, unit="difference")
