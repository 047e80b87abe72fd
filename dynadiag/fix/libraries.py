"""Causes in installed libraries: candidates for lines that nobody edits, tried as new texts of their files and delivered as a patch module.

A message that is given once (`messages`) is given while Dynamo traces; a branch on a tensor is written without one; what is read of tensors
is captured, and a size is read where it is made (`sizes`). What is tried for the user's own lines that no advice is for is here too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from dynadiag.changes import library_messages
from dynadiag.changes.branch import branch_at, rewritten
from dynadiag.changes.change import Candidate
from dynadiag.changes.edits import Edit, Span, dedented, placed
from dynadiag.changes.kinds import CAPTURES, kind_of
from dynadiag.changes.named_option import options_for
from dynadiag.changes.number_as_tensor import SLUG, with_tensor
from dynadiag.changes.number_loops import with_numbers
from dynadiag.changes.operator import as_operator
from dynadiag.changes.size_reads import read_once, read_outside
from dynadiag.changes.static_shape import STATIC, static_shape
from dynadiag.changes.syntax import rows_of
from dynadiag.errors import DynadiagError, EditError
from dynadiag.facts.user_frames import is_own_branch, is_own_file, is_standard_library, is_torchs_file
from dynadiag.fix.sources import Sources
from dynadiag.model.location import Location
from dynadiag.model.report import Finding, GraphBreak, Report
from dynadiag.source.imports import parse_canonical
from dynadiag.source.line import parse_line


def library_sites(finding: Finding, report: Report) -> list[GraphBreak]:
    """The break sites of a finding that stand in an installed library: neither the user's, nor Python's, nor torch's."""
    sites = [graph_break for graph_break in report.graph_breaks if graph_break.id in finding.evidence]
    return [site for site in sites if (place := library_place(site, report)) is not None and place.line is not None]


def library_place(site: GraphBreak, report: Report) -> Location | None:
    """The innermost line of a library: where the break is, or what calls the standard library there."""
    places = [*site.stack, *([site.torch_frame] if site.torch_frame is not None else [])]
    inner = next((place for place in reversed(places) if not is_standard_library(place.file)), None)
    if inner is None or is_own_file(inner.file, report.run) or is_torchs_file(inner.file):
        return None
    return inner


def _branch(cure: str, file: str, text: str, row: int, *, unsafe: bool, masked: bool = False) -> Candidate:
    """The branch at a row of a file, written without one. Raises EditError where that cannot be."""
    new = rewritten(branch_at(text, row), masked=masked)
    if new.gives_up is not None and not unsafe:
        raise EditError(f"`{new.slug}` gives something up ({new.gives_up}): use --unsafe to try it")
    edit = Edit(file=file, old=dedented(text, new.rows), new=new.new, near=row)
    return Candidate(
        id="",
        slug=new.slug,
        text=new.text,
        edits=(edit,),
        spans=(placed(text, edit),),
        cures=(cure,),
        gradients_why=new.gradients_why,
        gives_up=new.gives_up,
        branch=new.gives_up is None or bool(new.attributes),
        attributes=new.attributes,
    )


def own_lines(finding: Finding, report: Report, sources: Sources, whys: list[str], *, unsafe: bool) -> Iterator[Candidate]:
    """What rules make of the user's own lines of a finding, for which advice has nothing or what may be wrong where gradients flow."""
    sites = [
        graph_break for graph_break in report.graph_breaks if graph_break.id in finding.evidence and graph_break.torch_frame is not None
    ]
    for site in sites:
        place = site.torch_frame
        if place is None or place.line is None or not is_own_file(place.file, report.run):
            continue
        if is_own_branch(place, report.run):
            try:
                yield _branch(finding.fingerprint, *sources.text(place.file), place.line, unsafe=unsafe)
            except DynadiagError as error:
                whys.append(f"the branch cannot be written without one: {error.message}")
            with suppress(DynadiagError):
                yield _branch(finding.fingerprint, *sources.text(place.file), place.line, unsafe=unsafe, masked=True)
        with suppress(DynadiagError):
            # Most lines are none of these: the report's own reason says more.
            yield from _on_data(site, finding.fingerprint, *sources.text(place.file), place.line, report, [])
        for option in () if any(kind_of(advice.slug).is_safe_advice for advice in finding.fix) else options_for(site):
            try:
                yield _traced(option, finding.fingerprint, sources, f"Let Dynamo trace the line with `{option}`, which no advice is for")
            except DynadiagError as error:
                whys.append(f"no option can be set: {error.message}")


_TAGGED = (2, 9)
"""The first torch whose operators can be kept out of CUDA graphs."""


def _on_data(site: GraphBreak, cure: str, file: str, text: str, row: int, report: Report, whys: list[str]) -> Iterator[Candidate]:
    """What is tried for lines whose sizes, turns or branches are in the data."""
    if site.category not in ("scalar read", "dynamic shape operator", "data-dependent control flow"):
        return
    rules: list[tuple[Callable[[str, str, int], Iterable[Edit]], str, str]] = [
        (of_one_size, STATIC, "Compute a result whose size depends on no values"),
        (with_tensor, SLUG, "Keep a tensor where a number is read of one"),
        (with_numbers, "numbers-of-tensor", "Loop over the numbers that a tensor was made of"),
    ]
    versions = [tuple(map(int, re.findall(r"\d+", process.torch or "0")[:2])) for process in report.run.processes]
    if versions and min(versions) >= _TAGGED:
        rules.append((as_operator, "eager-operator", "Run lines that depend on data as one operator"))
    for rule, slug, words in rules:
        try:
            edits = tuple(rule(file, text, row))
            spans = tuple(placed(text, edit) for edit in edits)
            yield Candidate(id="", slug=slug, text=words, edits=edits, spans=spans, cures=(cure,))
        except DynadiagError as error:
            whys.append(error.message)


def of_one_size(file: str, text: str, row: int) -> Iterator[Edit]:
    """The line in a form of one size, as `explain` tells it. Raises EditError where there is none."""
    (code,) = dedented(text, range(row, row + 1))
    line = parse_line(code, parse_canonical(text)[1])
    advice = next(static_shape(line, None), None)
    if advice is None or any(line.calls("torch.bincount")):  # which makes a longer result for a larger value
        raise EditError("the line does not reduce what a mask selects")
    yield Edit(file=file, old=(code,), new=((advice.after or ""),), near=row)


def cures_of(finding: Finding, report: Report) -> list[str]:
    """The names of what is to be gone when a finding is cured: its sites in libraries by themselves, since findings on one line are
    numbered, else the finding.
    """
    return [library_site.fingerprint for library_site in library_sites(finding, report)] or [finding.fingerprint]


def tried(finding: Finding, report: Report, sources: Sources, whys: list[str], *, unsafe: bool) -> Iterator[Candidate]:
    """What can be tried for the sites of a finding in libraries; the reasons for those that have nothing go to `whys`."""
    for site in library_sites(finding, report):
        place = library_place(site, report)
        where = "" if place is None else f"{'/'.join(Path(place.file).parts[-2:])}:{place.line}: "
        for make in (_changed, _with_option, _with_size):
            try:
                yield from make(site, report, sources, unsafe=unsafe)
            except DynadiagError as error:
                whys.append(f"{where}{error.message}")
        with suppress(DynadiagError):
            if place is not None and place.line is not None:
                yield from _on_data(site, site.fingerprint, *sources.library_text(place.file), place.line, report, whys)


def _changed(site: GraphBreak, report: Report, sources: Sources, *, unsafe: bool) -> Iterator[Candidate]:
    """The change of a library's function for a site. Raises EditError where there is none."""
    place = library_place(site, report)
    if place is None or place.line is None:
        raise EditError("the line is not recorded")
    file, text = sources.library_text(place.file)
    rows = rows_of(text)
    if place.line > len(rows) or (place.code is not None and rows[place.line - 1].strip() != place.code.strip()):
        raise EditError(f"{Path(file).name} is not as it was recorded")
    said = library_messages.while_tracing(site.fingerprint, file, text, place.line)
    if said is not None:
        yield said
    else:
        yield _branch(site.fingerprint, file, text, place.line, unsafe=unsafe)


def _with_option(site: GraphBreak, report: Report, sources: Sources, *, unsafe: bool) -> Iterator[Candidate]:
    if site.category not in CAPTURES:
        raise EditError("no option of torch ends it")
    yield _traced(CAPTURES[site.category], site.fingerprint, sources, "Capture what a library reads of tensors")


def _traced(option: str, cure: str, sources: Sources, text: str) -> Candidate:
    edit, span = _option(option, sources)
    return Candidate(id="", slug=option.replace("_", "-"), text=text, edits=(edit,), spans=(span,), cures=(cure,))


def _option(name: str, sources: Sources) -> tuple[Edit, Span]:
    edit = Edit(file=sources.script, old=(), new=(f"torch._dynamo.config.{name} = True",))
    return edit, placed(sources.text(sources.script)[1], edit)


def _with_size(site: GraphBreak, report: Report, sources: Sources, *, unsafe: bool) -> Iterator[Candidate]:
    """A size that is read where it is made, and captured."""
    place = library_place(site, report)
    if site.category != "scalar read" or place is None or place.line is None:
        return
    edits = [read_once(*sources.library_text(place.file), place.line)]
    edits += _read_outside(report, sources, {(edits[0].file, edits[0].near)})
    spans = [placed(sources.texts[edit.file], edit) for edit in edits]
    option, span = _option("capture_scalar_outputs", sources)
    text = "Read a size of a library where it is made, and capture it"
    yield Candidate(id="", slug="size-item", text=text, edits=(*edits, option), spans=(*spans, span), cures=(site.fingerprint,))


def _read_outside(report: Report, sources: Sources, known: set[tuple[str, int | None]]) -> Iterator[Edit]:
    """The other numbers that libraries read and branch on, which stay outside of the graph."""
    for site in report.graph_breaks:
        place = library_place(site, report)
        if site.category == "scalar read" and place is not None and place.line is not None:
            file, text = sources.library_text(place.file)
            edit = read_outside(file, text, place.line)
            if edit is not None and (file, place.line) not in known:
                known.add((file, place.line))
                yield edit
