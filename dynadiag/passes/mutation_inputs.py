"""Mutations of a graph's tensor inputs: AOTAutograd's metadata decides what and where, the probe and the graph's text say which line."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dynadiag.facts import guard_sources
from dynadiag.model.mutations import AotInput, ProbedMutation
from dynadiag.model.run import Run
from dynadiag.passes.mutation_facts import Fact, Site, WrittenInput, site_of
from dynadiag.passes.mutation_graphs import GraphView, KnownInput

_UNNAMED_SCOPE = re.compile(r"^G\['___unnamed_scope_\d+_c\d+'\]")
UNNAMED = "an input that the log does not name"


def input_facts(view: GraphView, run: Run) -> Iterator[Fact]:
    """One fact for each mutated input and kind, without effects yet; `code` is filled with them."""
    probed = {probed_mutation.index: probed_mutation for probed_mutation in (view.probe.mutations or () if view.probe is not None else ())}
    for known in view.inputs:
        aot = view.aot.inputs[known.index] if view.aot is not None and known.index < len(view.aot.inputs) else None
        mutation = probed.get(known.index)
        kinds = _kinds(aot) if view.aot is not None else _probed_kinds(view, known, mutation)
        for kind in kinds:
            yield _fact(view, known, aot, mutation, kind, run)


def disagreements(view: GraphView) -> Iterator[str]:
    """Inputs that AOTAutograd and the probe judge differently, in words."""
    if view.aot is None or view.probe is None or view.probe.mutations is None or view.probe.error is not None:
        return
    told = {mutation.index: set(mutation.kinds) & {"data", "metadata", "storage"} for mutation in view.probe.mutations}
    for known in view.inputs:
        ours, theirs = told.get(known.index, set()), set(_kinds(view.aot.inputs[known.index]))
        if ours != theirs:
            name = guard_sources.readable(known.source) if known.source else known.name
            said = f"AOTAutograd says {_mutated_words(theirs)}, dynadiag's own probe says {_mutated_words(ours)}"
            yield f"{view.graph.id}: for `{name}`, {said}; the report follows AOTAutograd."


def _mutated_words(kinds: set[str]) -> str:
    return f"its {' and '.join(sorted(kinds))} {'is' if len(kinds) == 1 else 'are'} mutated" if kinds else "nothing is mutated"


def _kinds(aot: AotInput | None) -> tuple[str, ...]:
    if aot is None or not aot.is_mutated:
        return ()
    if aot.replaces_storage or aot.resizes_storage:
        return ("storage",)
    return (*(("data",) if aot.mutates_data else ()), *(("metadata",) if aot.mutates_metadata else ()))


def _probed_kinds(view: GraphView, known: KnownInput, mutation: ProbedMutation | None) -> tuple[str, ...]:
    """Without metadata: what the probe saw; without a probe, the writes that the text shows."""
    if view.probe is not None and view.probe.mutations is not None:
        return (
            () if mutation is None else tuple(kind for kind in mutation.kinds if kind in ("data", "metadata", "storage", "requires_grad"))
        )
    return ("data",) if known.name.lower() in view.text.inputs else ()


def _fact(view: GraphView, known: KnownInput, aot: AotInput | None, mutation: ProbedMutation | None, kind: str, run: Run) -> Fact:
    unknown: dict[str, str] = {}
    touched = mutation.bytes_touched if mutation is not None else None
    if touched is None:
        unknown["bytes_touched"] = view.why_not_probed or "the probe could not tell the size of the write"
    where = _where(aot, mutation)
    if where is None:
        unknown["where"] = view.why_no_aot or "AOTAutograd's metadata does not have this input"
    back = _written_back(where, known, kind)
    if back is None:
        unknown["bytes_written_back"] = unknown.get("where") or "the size of this input is symbolic or was not recorded"
    static = known.index in view.aot.static if view.aot is not None and view.aot.static is not None else known.static
    static = True if known.marked else static  # metadata from the cache on disk may be that of an input without the mark (torch 2.11)
    if static is None:
        unknown["static"] = "neither AOTAutograd's metadata nor a record of the graph's inputs says so"
    no_grad = aot.under_no_grad if aot is not None else (mutation.no_grad if mutation is not None else None)
    if no_grad is None:
        unknown["no_grad"] = view.why_not_probed or "the probe did not see the write"
    sites = _sites(view, known, mutation, kind, run)
    if not sites:
        unknown["sites"] = view.why_not_probed or "no operator of the graph was seen to write it"
    return Fact(
        code="",
        frame=view.frame,
        graph=view.graph.id,
        # Dynamo's name, but for the number of a namespace that no module has: it is another one in each process.
        input=_UNNAMED_SCOPE.sub("G", known.source or known.name or UNNAMED),
        kind=kind,
        sites=sites,
        where=where,
        bytes_touched=touched,
        bytes_written_back=back,
        no_grad=no_grad,
        given=WrittenInput(
            known_as=known.known_as,
            static=static,
            requires_grad=aot.requires_grad if aot is not None else known.requires_grad,
            aliases=_aliases(view, known),
            overlaps=tuple(_source_of(view, name) for name in mutation.overlaps) if mutation is not None else (),
        ),
        unknown=unknown,
    )


def _where(aot: AotInput | None, mutation: ProbedMutation | None) -> str | None:
    if aot is not None:
        return "in_graph" if aot.in_graph else "epilogue"
    return mutation.where if mutation is not None and mutation.where in ("in_graph", "epilogue", "rejected") else None


def _written_back(where: str | None, known: KnownInput, kind: str) -> int | None:
    if where == "in_graph":
        return 0
    return (known.size if kind == "data" else 0) if where == "epilogue" else None


def _aliases(view: GraphView, known: KnownInput) -> tuple[str, ...]:
    same = view.by_storage[known.storage] if known.storage is not None else ()
    return tuple(known_input.source or known_input.name for known_input in same if known_input.index != known.index)


def _source_of(view: GraphView, name: str) -> str:
    known = view.input_named(name)
    return known.source or name if known is not None else name


def _sites(view: GraphView, known: KnownInput, mutation: ProbedMutation | None, kind: str, run: Run) -> tuple[Site, ...]:
    """The writing ops with their user lines: the probe's, else those that the text shows, else calls of private operators."""
    found: list[Site] = []
    if mutation is not None:
        writes = [site for site in mutation.sites if site.kind == kind] or list(mutation.sites)
        found = [site_of(view.frame, write.stack, write.op, run) for write in writes]
    if not found:
        nodes = view.text.inputs.get(known.name.lower()) or view.text.maybe.get(known.name.lower(), [])
        found = [site_of(view.frame, view.stack_of(node), node.target, run) for node in nodes]
    return tuple(dict.fromkeys(found))
