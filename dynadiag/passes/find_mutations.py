"""Which line mutates what, what it costs and what it breaks: AOTAutograd's metadata, Dynamo's side effects, graph breaks and recompiles,
inductor's post-grad graphs and the probe, joined. Reads records only.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

from dynadiag.advice.mutations import mutation_advice
from dynadiag.facts.fingerprint import Subject, fingerprints
from dynadiag.facts.user_frames import is_own_file, normal_path, own_frame, source_function
from dynadiag.facts.wording import plural
from dynadiag.model import codes
from dynadiag.model.location import Location
from dynadiag.model.report import Mutation, PassResult
from dynadiag.model.run import Frame, Run
from dynadiag.passes.mutation_breaks import break_facts
from dynadiag.passes.mutation_effects import optimizer_breaks, with_effects
from dynadiag.passes.mutation_errors import (
    failed_by_new_sizes,
    leaf_facts,
    made_inside,
    refusal_of,
    refused,
    uncaught_effect,
    uncaught_facts,
)
from dynadiag.passes.mutation_facts import Effect, Fact, Site, severity_of, site_of, sorted_effects, worst
from dynadiag.passes.mutation_findings import mutation_findings
from dynadiag.passes.mutation_graphs import GraphView, graph_views, last_graphs
from dynadiag.passes.mutation_inputs import disagreements, input_facts
from dynadiag.passes.mutation_postgrad import copy_effect, missed_reinplacing, whole_copies
from dynadiag.passes.mutation_python import python_facts
from dynadiag.passes.parity_calls import Wrong, in_words, sharing_in_words, wrong_things

Key = tuple[object, ...]
MOST_PYTHON = 5_000
MOST_WRITES = 5_000  # of graphs, those that all ranks have in common counted once
MOST_GRAPHS = 20_000  # whose texts are read: five of each rank of a job of 4,096
_OF_BREAKS = frozenset(
    (
        codes.SIZES_CHANGED,
        codes.STORAGE_REPLACED,
        codes.REQUIRES_GRAD_CHANGED,
        codes.WRITTEN_IN_BODY,
        codes.OPTIMIZER_STEP,
        codes.OUT_RESIZED,
        codes.STATE_SET,
        codes.PARAMETER_REPLACED,
    )
)
# Each backward graph of compiled autograd is a function of a file of its own.
_MADE_FILE = re.compile(r"<eval_with_key>\.\d+")


_DETAIL = "the tensor is made in the graph: functionalization replaces the write with a new value"
_KINDS = frozenset(("data", "metadata", "storage"))
_IF_MOVED = "when torch, unaware of the write, moves or drops the call, or reads a value from before it"


class _Unprobed(NamedTuple):
    """A graph of which the probe says nothing.

    `blind` when AOTAutograd does not say either which inputs it writes, `textless` when the graph's text does not either.
    """

    graph: str
    why: str
    blind: bool
    textless: bool


def find_mutations(run: Run) -> PassResult:
    """Mutations with their effects, most expensive first, one finding for those that cost something, and a note where sources disagree."""
    breaks = optimizer_breaks(run)
    facts: list[Fact] = []
    notes: list[str] = []
    unprobed: list[_Unprobed] = []
    graphs = list(islice(last_graphs(run), MOST_GRAPHS + 1))
    looked, writes = 0, set[Key]()
    for view in graph_views(run, graphs[:MOST_GRAPHS]):  # one after the other: each holds what was parsed of its graph
        found = list(_of_graph(view, breaks, run))
        facts += found
        writes.update(map(_key, found))
        notes += disagreements(view)
        if view.why_not_probed is not None:
            unprobed.append(_Unprobed(view.graph.id, view.why_not_probed, blind=view.aot is None, textless=view.graph.text is None))
        looked += 1
        if len(writes) >= MOST_WRITES:
            break
    if len(graphs) > looked:
        notes.append(f"Mutations: only the first {looked:,} graphs were analysed; there are more.")
    facts += [*break_facts(run), *leaf_facts(run), *_first(python_facts(run), notes), *uncaught_facts(run, facts)]
    merged = sorted(_merged(with_parity(facts, run)), key=_order)
    mutations = _mutations(merged, run)
    return PassResult(mutations=mutations, findings=mutation_findings(mutations, run), notes=(*notes, *_notes(unprobed, facts)))


def _first(facts: Iterable[Fact], notes: list[str]) -> list[Fact]:
    """The facts about Python objects, of a hostile log only the first MOST_PYTHON."""
    found = list(islice(facts, MOST_PYTHON + 1))
    if len(found) > MOST_PYTHON:
        notes.append(f"Mutations: the first {MOST_PYTHON:,} changes of Python objects are shown; there are more.")
    return found[:MOST_PYTHON]


def _of_graph(view: GraphView, breaks: Mapping[int, tuple[Effect, ...]], run: Run) -> Iterator[Fact]:
    facts = [with_effects(fact, view, run) for fact in input_facts(view, run)]
    problem = refusal_of(view, run)
    if problem is not None:
        yield from refused(facts, problem, view, run)
        return
    copied = whole_copies(view) if facts else frozenset()
    by_name = {known.known_as or known.source or known.name: known for known in view.inputs}
    for fact in facts:
        known = by_name.get(fact.input)
        if known is not None and known.index in copied:
            yield replace(fact, code=codes.MISSED_IN_PLACE, effects=(copy_effect(known.size),))
        if fact.code == codes.OPTIMIZER_STEP:
            fact = replace(fact, effects=(*fact.effects, *breaks.get(fact.frame.key.process, ())))
        yield failed_by_new_sizes(uncaught_effect(fact, run))
    yield from missed_reinplacing(view, run)
    yield from inner_facts(view, run)


def _merged(facts: Iterable[Fact]) -> Iterator[Fact]:
    """Equal mutations of the compilations of one function (recompiles, resume functions, ranks) become one."""
    groups: dict[Key, list[Fact]] = {}
    for fact in facts:
        groups.setdefault(_key(fact), []).append(fact)
    for group in groups.values():
        first = min(group, key=lambda fact: (not fact.input.startswith(("L[", "G[")), "___stack" in fact.input))
        yield replace(
            first,
            effects=sorted_effects(effect for fact in group for effect in fact.effects),
            sites=tuple(dict.fromkeys(site for fact in group for site in fact.sites)),
            doubts=tuple(dict.fromkeys(doubt for fact in group for doubt in fact.doubts)),
            frames=tuple(dict.fromkeys(fact.frame.id for fact in group)),
        )


def _key(fact: Fact) -> Key:
    """What makes two facts one mutation: the function and the input; for a write that breaks the graph its line."""
    where = _where(fact)
    if fact.code in _OF_BREAKS and fact.graph is None and where is not None:
        return fact.code, fact.kind, where.file, where.line
    return fact.code, fact.kind, fact.input, _MADE_FILE.sub("<eval_with_key>", fact.frame.file or ""), source_function(fact.frame.name)


def _order(fact: Fact) -> tuple[int, int, str, str]:
    kind = worst(fact.effects)
    return severity_of(kind) if kind is not None else severity_of("free"), -(fact.bytes_written_back or 0), fact.code, fact.input


def _mutations(facts: Sequence[Fact], run: Run) -> tuple[Mutation, ...]:
    prints = fingerprints([Subject(fact.code, _where(fact), f"{fact.input} {fact.kind}") for fact in facts], run)
    return tuple(_mutation(number, fact, mark, run) for number, (fact, mark) in enumerate(zip(facts, prints, strict=True)))


def _where(fact: Fact) -> Location | None:
    return next((site.where for site in fact.sites if site.where is not None), None)


def _mutation(number: int, fact: Fact, mark: str, run: Run) -> Mutation:
    unknown = dict(fact.unknown)
    if not fact.effects:
        unknown["effects"] = unknown.get("where") or unknown.get("static") or "no record says what this write costs"
    found = Mutation(
        id=f"m{number}",
        fingerprint=mark,
        code=fact.code,
        frame=fact.frame.id,
        input=fact.input,
        kind=fact.kind,
        effects=tuple(effect.plain() for effect in fact.effects),
        bytes_touched=fact.bytes_touched,
        bytes_written_back=fact.bytes_written_back,
        no_grad=fact.no_grad,
        static=fact.given.static,
        aliases=fact.given.aliases,
        sites=tuple(_site(site, run) for site in fact.sites),
        frames=fact.frames,
        graph=fact.graph,
        where=fact.where,
        requires_grad=fact.given.requires_grad,
        overlaps=fact.given.overlaps,
        refusal=fact.refusal,
        doubts=fact.doubts,
        unknown=unknown,
    )
    return replace(found, advice=mutation_advice(found, run))


def _site(site: Site, run: Run) -> dict[str, str | int | bool | None]:
    """A site as `report.json` has it; `own` says whether the line is the user's, `library` where the write really is."""
    where, inner = site.where, site.inner
    library = None if inner is None else f"{inner.file}:{inner.line}"
    return {
        "file": where.file if where is not None else None,
        "line": where.line if where is not None else None,
        "code": where.code if where is not None else None,
        "function": where.function if where is not None else None,
        "op": site.op,
        "own": where is not None and is_own_file(where.file, run),
        "library": library,
    }


def _notes(unprobed: Sequence[_Unprobed], facts: Sequence[Fact]) -> Iterator[str]:
    """What is not known because graphs were not probed: which inputs they write, or only with which lines and sizes."""
    written = {fact.graph for fact in facts}
    blind = [graph for graph in unprobed if graph.blind and not graph.textless]
    told = [entry for entry in unprobed if not entry.blind and entry.graph in written]
    for graphs, what in (
        ([graph for graph in unprobed if graph.blind and graph.textless], "which inputs of {} are written is not known"),
        (blind, "which inputs of {} are written is known only from the graph's text"),
        (told, "the lines that write inputs of {} come from the graph's text; sizes are not known"),
    ):
        reasons = Counter(graph.why for graph in graphs)
        for why, count in list(reasons.items())[:3]:
            yield f"Mutations: {what.format(plural(count, 'graph'))} ({why})."


def by_optimizer(site: Site) -> bool:
    """Whether a line of torch.optim writes: what it makes on the way belongs to the optimizer's step."""
    return site.inner is not None and "/torch/optim/" in normal_path(site.inner.file)


def inner_facts(view: GraphView, run: Run) -> Iterator[Fact]:
    """One fact for each variable that the graph makes and code that the user wrote or called writes in place."""
    by_name: dict[str, list[Site]] = {}
    for node in view.inner_writes:
        site = site_of(view.frame, view.stack_of(node), node.target, run)
        if site.where is None or not is_own_file(site.where.file, run) or by_optimizer(site):
            continue
        by_name.setdefault(made_inside(site, node, run), []).append(site)
    for name, sites in by_name.items():
        yield Fact(
            code=codes.MADE_IN_GRAPH,
            frame=view.frame,
            graph=view.graph.id,
            input=name,
            kind="data",
            where="in_graph",
            effects=(Effect("free", "derived", _DETAIL),),
            sites=tuple(dict.fromkeys(sites)),
            bytes_written_back=0,
            unknown={
                "bytes_touched": "only writes of inputs are measured",
                "no_grad": "only writes of inputs are analysed",
                "static": "it is not an input",
            },
        )


# "Written on a tensor made in the graph": not where that tensor turned out to be an input.


def with_parity(facts: Sequence[Fact], run: Run) -> Iterator[Fact]:
    """The facts, those of an input that was seen to be wrong with that as their worst effect; and a fact for each input that had none."""
    wrong = [wrong_thing for wrong_thing in wrong_things(run) if wrong_thing.code == codes.WRONG_INPUT and wrong_thing.input is not None]
    by_input: dict[tuple[object, ...], list[Wrong]] = {}
    for item in wrong:
        by_input.setdefault(_input_of(run.frame(item.call.frame) if item.call.frame else None, item.input), []).append(item)
    places = {entry.where for entry in wrong}
    told: set[int] = set()
    for fact in facts:
        mine = by_input.get(_input_of(fact.frame, fact.input), []) if fact.kind in _KINDS else []
        told.update(map(id, mine))
        if fact.code == codes.MADE_IN_GRAPH and {site.where for site in fact.sites} & places:
            continue
        yield replace(fact, effects=sorted_effects((*fact.effects, *map(_effect, mine)))) if mine else fact
    for element in wrong:
        frame = run.frame(element.call.frame) if element.call.frame else None
        if id(element) not in told and frame is not None:
            yield _fact(element, frame)
    yield from _undeclared({(one.call.frame, one.input) for one in wrong}, run)


def _undeclared(wrong: set[tuple[str | None, str | None]], run: Run) -> Iterator[Fact]:
    """Writes that an operator was seen to make without declaring them, in calls whose results were eager's all the same."""
    for call in run.parity:
        frame = run.frame(call.frame) if call.frame else None
        for write in call.writes if call.verdict == "equal" and frame is not None else ():
            if frame is None or write.declared or (call.frame, write.input) in wrong:
                continue
            where = own_frame(write.stack, run)
            detail = (
                f"seen in call {call.call}: {write.op} wrote it and does not declare that; even so, the compared calls had eager's results"
            )
            yield Fact(
                code=codes.UNDECLARED_WRITE,
                frame=frame,
                input=write.input,
                kind="data",
                effects=(Effect("silent_wrong", "predicted", detail, condition=_IF_MOVED),),
                sites=() if where is None else (Site(where, write.op),),
            )


def _input_of(frame: Frame | None, name: str | None) -> tuple[object, ...]:
    """What a wrong input and a fact must agree in to be about the same: the function and the input."""
    return () if frame is None else (frame.file, source_function(frame.name), name)


def _effect(wrong: Wrong) -> Effect:
    sharing = sharing_in_words(wrong.call)
    detail = f"seen in call {wrong.call.call}: {in_words(wrong.difference)}" + ("" if sharing is None else f"; {sharing}")
    return Effect("silent_wrong", "observed", detail)


def _fact(wrong: Wrong, frame: Frame) -> Fact:
    op = next((write.op for write in wrong.call.writes if write.input == wrong.input), None)
    sites = () if wrong.where is None else (Site(wrong.where, op),)
    return Fact(code=codes.WRONG_INPUT, frame=frame, input=str(wrong.input), kind="data", effects=(_effect(wrong),), sites=sites)
