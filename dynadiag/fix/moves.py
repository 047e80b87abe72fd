"""Candidates that move something: the model compiled instead of the train step, what is made anew each time out of its loop or function."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import replace

from dynadiag.capture.compiled_calls import APART
from dynadiag.changes import dynamic, hoist, region_edits, smaller_region, train_step, train_step_edits, varying_number
from dynadiag.changes.change import Candidate
from dynadiag.changes.edits import Edit, placed
from dynadiag.errors import DynadiagError, EditError
from dynadiag.facts.user_frames import is_own_file, normal_path, source_function
from dynadiag.facts.wording import listed
from dynadiag.fix.inside.running import NUMBER, WATCH
from dynadiag.fix.sources import Sources
from dynadiag.model import codes
from dynadiag.model.location import Location
from dynadiag.model.report import Finding, GraphBreak, Report
from dynadiag.source.imports import imports_of

PROOF_NAMES = region_edits.ProofNames(watch=WATCH, apart=APART)
_OBJECT = re.compile(r"(?:L|G)\['(\w+)'\]")


def moved(
    finding: Finding, report: Report, sources: Sources, whys: list[str], rewritten: Collection[tuple[str, int]]
) -> Iterator[Candidate]:
    """What can be tried for a finding; the reasons for what has a place, but cannot be moved, go to `whys`.

    `rewritten` are the lines (by file) that other candidates change in place.
    """
    makes = (
        _compiled_apart(finding, report, sources),
        _smaller_region(finding, report, sources, rewritten),
        _smaller_region(finding, report, sources, ()),
        _out_of_loops(finding, report, sources),
        _out_of_function(finding, report, sources),
        _varying_numbers(finding, report, sources),
        _dynamic(finding, report, sources),
        _static(finding, report, sources),
    )
    for make in makes:
        try:
            yield from make
        except DynadiagError as error:
            whys.append(f"nothing can be moved: {error.message}")


def _candidate(slug: str, words: str, edits: tuple[Edit, ...], finding: Finding, text: str) -> Candidate:
    spans = tuple(placed(text, edit) for edit in edits)
    return Candidate(id="", slug=slug, text=words, edits=edits, spans=spans, cures=(finding.fingerprint,))


def _compiled_apart(finding: Finding, report: Report, sources: Sources) -> Iterator[Candidate]:
    advice = next((item for item in finding.fix if item.slug == train_step_edits.SLUG), None)
    if advice is None or finding.where is None:
        return
    new = advice.after or ""
    model, in_place = re.split(r"\.| = ", new)[0], new.endswith(".compile()")
    file, text = sources.text(finding.where.file)
    sites = [graph_break for graph_break in report.graph_breaks if graph_break.id in finding.evidence]
    frames = [report.run.frame(frame) for site in sites for frame in site.frames]
    names = dict.fromkeys(name for element in frames if element is not None and (name := source_function(element.name)) is not None)
    why: EditError | None = None
    for name in names:
        try:
            edits = train_step_edits.compiled_apart(file, text, name, model, PROOF_NAMES, in_place=in_place)
        except EditError as error:
            why = why or error
        else:
            words = f"Compile `{model}` where it is made, and leave the train step in plain Python"
            yield _candidate(train_step_edits.SLUG, words, edits, finding, text)
            return
    raise why or EditError("the compiled function is not recorded")


def _smaller_region(finding: Finding, report: Report, sources: Sources, rewritten: Collection[tuple[str, int]]) -> Iterator[Candidate]:
    """What the compiled function calls, compiled instead of it: where a break of the run stands in what is compiled.

    A break of which the line is `rewritten` stands only in the way of what calls its function: that can be compiled whole.
    """
    versions = [tuple(map(int, re.findall(r"\d+", process.torch or "0")[:2])) for process in report.run.processes]
    if finding.where is None or finding.where.line is None or not versions:
        return
    file, text = sources.text(finding.where.file)
    places = [place for site in report.graph_breaks for place in _in_the_way(site, rewritten)]
    broken = {place.line for place in places if place.line is not None and normal_path(place.file) == normal_path(finding.where.file)}
    ways = {place.line for site in report.graph_breaks if site.id in finding.evidence for place in (*site.stack, finding.where)}
    for smaller in smaller_region.smaller_regions(file, text, broken, PROOF_NAMES, in_place=min(versions) >= train_step.IN_PLACE):
        if not smaller.plain.isdisjoint(ways if rewritten else {finding.where.line}):
            words = f"Compile {', '.join(f'`{name}`' for name in smaller.names)} and leave what calls that in plain Python"
            candidate = _candidate(smaller_region.SLUG, words, smaller.edits, finding, text)
            leaves = finding.where.line not in smaller.plain
            yield replace(candidate, moves_region=True, first=smaller.drives, leaves_rewrites=leaves)


def _in_the_way(site: GraphBreak, rewritten: Collection[tuple[str, int]]) -> Iterator[Location]:
    """The lines that a break stands in and on the way to it, without those of a function in which its line is rewritten."""
    places = (*site.stack, *(() if site.torch_frame is None else (site.torch_frame,)))
    last = places[-1] if places else None
    inside = last is not None and last.line is not None and (normal_path(last.file), last.line) in rewritten
    return (place for place in places if not inside or last is None or place.function != last.function)


def _out_of_loops(finding: Finding, report: Report, sources: Sources) -> Iterator[Candidate]:
    if not finding.code.startswith("DR"):
        return
    found = {change.source for recompile in report.recompiles if recompile.id in finding.evidence for change in recompile.changed}
    named = frozenset(match[1] for name in found for match in _OBJECT.finditer(name))
    file, text = sources.text(sources.script)
    for names in ([None] if any("backend" in item for item in found) else []) + ([named] if named else []):
        for edits, target in hoist.out_of_loops(file, text, names):
            words = f"Make `{target}` once, before the loop, instead of in each round"
            yield replace(_candidate(hoist.HOIST, words, edits, finding, text), of_backend=names is None)


def _out_of_function(finding: Finding, report: Report, sources: Sources) -> Iterator[Candidate]:
    where = finding.where
    if not finding.code.startswith("GB") or where is None or where.line is None or not is_own_file(where.file, report.run):
        return
    if not hoist.makes_constant(where.code or "", imports_of(where.file, report.run)):
        return
    file, text = sources.text(where.file)
    edits, name = hoist.out_of_function(file, text, where.line)
    words = f"Make the value once, before the function, instead of in each call (`{name}`)"
    yield replace(_candidate(hoist.CONSTANT, words, edits, finding, text), attributes=(name,))


def _varying_numbers(finding: Finding, report: Report, sources: Sources) -> Iterator[Candidate]:
    """The floats that a finding's recompiles compiled in, given as tensors."""
    rows = [row for row in report.transitions if not set(finding.evidence).isdisjoint(row.recompiles)]
    rows = [row for row in rows if row.kind == "value" and row.source.isidentifier() and varying_number.is_float(row.values)]
    place = next((row.own_frame for row in rows if row.own_frame is not None), None)
    if finding.severity == "note" or place is None or place.line is None or not is_own_file(place.file, report.run):
        return
    file, text = sources.text(place.file)
    function = (source_function(place.function) or "").rpartition(".")[2]
    names = [row.source for row in rows if row.frame_name == function]
    edits = varying_number.as_tensors(file, text, function, place.line, names, NUMBER)
    words = f"Give {listed([f'`{name}`' for name in names], limit=4)} as a tensor, so that no value is compiled in"
    bound = varying_number.names_in_state(text, function, place.line, names)
    yield replace(_candidate(varying_number.SLUG, words, edits, finding, text), attributes=bound)


def _dynamic(finding: Finding, report: Report, sources: Sources) -> Iterator[Candidate]:
    """`dynamic=True` where the sizes of a finding change, with the options that its advice sets."""
    del report
    if finding.code != codes.SIZE or finding.severity == "note":
        return
    file, text = sources.text(sources.script)
    edits = (
        dynamic.compiled_dynamic(file, text, source_function(None if finding.where is None else finding.where.function)),
        *dynamic.options_of(file, [advice for advice in finding.fix if advice.slug == dynamic.SHAPES]),
    )
    yield _candidate(dynamic.SLUG, "Compile for changing sizes from the first call on", edits, finding, text)


def _static(finding: Finding, report: Report, sources: Sources) -> Iterator[Candidate]:
    """`dynamic=False` where a compilation failed: an operator may have no form for sizes that are symbols."""
    del report
    if finding.code != codes.COMPILATION_FAILED:
        return
    file, text = sources.text(sources.script)
    edits = tuple(dynamic.compiled_static(file, text))
    yield _candidate(dynamic.STATIC, "Compile each size by itself, since the compiler fails for sizes that change", edits, finding, text)
