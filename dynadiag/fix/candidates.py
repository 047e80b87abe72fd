"""What of a report's advice can be applied by itself: each mechanical advice as edits, with the findings that it is to cure."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

import libcst as cst
from libcst import matchers

from dynadiag.changes import legality
from dynadiag.changes.change import Candidate, Left
from dynadiag.changes.edits import Edit, Span, applied, placed
from dynadiag.changes.kinds import Kind, kind_of
from dynadiag.errors import DynadiagError, EditError
from dynadiag.fix import libraries, moves
from dynadiag.fix.library_cures import library_edits, library_settings
from dynadiag.fix.sources import Sources
from dynadiag.fix.torch_name import with_torch_named
from dynadiag.graphs.generations import generations
from dynadiag.model.clauses import Unadvised
from dynadiag.model.report import Advice, Finding, Report
from dynadiag.source.imports import TORCH
from dynadiag.source.tree import holds, nodes_in

_SHARED: Final = matchers.Call(
    matchers.Attribute(value=~matchers.OneOf(matchers.Call(), matchers.BinaryOperation()), attr=matchers.Name("detach"))
)
PRINT_OPTION: Final = "torch._dynamo.config.reorderable_logging_functions.add(print)"


def candidates(report: Report, sources: Sources, *, unsafe: bool) -> tuple[list[Candidate], list[Left]]:
    """What can be tried, in the order of the findings but causes first, and why nothing is tried for a finding from warning upwards."""
    found: dict[tuple[Edit, ...], Candidate] = {}
    left: list[Left] = []
    wanted = [item for item in report.findings if item.severity != "note" or item.fix or item.code.startswith("DR")]
    reasons: dict[str, list[str]] = {finding.fingerprint: [] for finding in wanted}
    in_lines: dict[str, list[Candidate]] = {}
    for finding in wanted:
        whys = reasons[finding.fingerprint]
        in_lines[finding.fingerprint] = list(_of_finding(finding, sources, whys, unsafe=unsafe))
        for find in (libraries.own_lines, libraries.tried):
            in_lines[finding.fingerprint] += find(finding, report, sources, whys, unsafe=unsafe)
    rewritten = _rewritten(in_lines.values())
    for finding in wanted:
        whys = reasons[finding.fingerprint]
        made = [*in_lines[finding.fingerprint], *moves.moved(finding, report, sources, whys, rewritten)]
        made = list(_named(made, sources, whys))
        for candidate in made:
            known = found.get(candidate.edits)
            cures = candidate.cures if known is None else (*known.cures, *candidate.cures)
            leaves = candidate.leaves_rewrites or (known is not None and known.leaves_rewrites)
            found[candidate.edits] = replace(known or candidate, cures=tuple(dict.fromkeys(cures)), leaves_rewrites=leaves)
        if not made and finding.severity != "note":
            left.append(Left(fingerprint=finding.fingerprint, why=whys[0] if whys else _unadvised(finding)))
    # A driver stays plain Python whatever else is changed in it; any other function only where no change of its lines helps.
    order = sorted(causes_first(found.values(), report.findings), key=lambda item: -1 if item.first else int(item.moves_region))
    return [replace(item, id=f"x{number}") for number, item in enumerate(order, start=1)], left


def causes_first(given: Iterable[Candidate], findings: Sequence[Finding]) -> list[Candidate]:
    """The changes in their order, but each behind those that cure what its finding stands behind, which may end that finding, too."""
    marks = {finding.id: finding.fingerprint for finding in findings}
    behind = generations({finding.fingerprint: [marks[name] for name in finding.behind] for finding in findings if finding.behind})
    return sorted(given, key=lambda item: min(behind.get(cure, 0) for cure in item.cures))


def _rewritten(found: Iterable[Iterable[Candidate]]) -> frozenset[tuple[str, int]]:
    """The lines (by file) that a candidate rewrites in place."""
    changes = (item for made in found for item in made if item.gradients_why is None)
    pairs = ((edit, span) for item in changes for edit, span in zip(item.edits, item.spans, strict=True) if edit.old)
    return frozenset((edit.file, row) for edit, span in pairs for row in range(span.begin, span.end))


def uncovered_options(report: Report, known: Collection[str], sources: Sources) -> list[Candidate]:
    """The options that advice names for findings which only a changed program has: `known` are those of the original.

    Its lines are other ones than those of the original, so nothing that edits a line is taken.
    """
    new = [finding for finding in report.findings if finding.severity != "note" and finding.fingerprint not in known]
    advised = [(finding, advice) for finding in new for advice in finding.fix if kind_of(advice.slug).applied == "option"]
    found = []
    for finding, advice in advised:
        with suppress(EditError):
            found.append(_candidate(finding, advice, sources, kind_of(advice.slug)))
    return [candidate for candidate in found if candidate.gives_up is None]


def _named(made: Iterable[Candidate], sources: Sources, whys: list[str]) -> Iterator[Candidate]:
    """The candidates with torch as the modules name it. In a package's module no import can be added."""
    for candidate in made:
        edits = tuple(with_torch_named(edit, sources.texts[edit.file]) for edit in candidate.edits)
        if any(edit.needs_torch and edit.file in sources.modules for edit in edits):
            whys.append(f"`{candidate.slug}` cannot be applied: the package's module does not import torch")
        else:
            yield replace(candidate, edits=edits)


def _unadvised(finding: Finding) -> str:
    """The report's own reason why nothing is advised."""
    reason = next((clause.reason for clause in finding.clauses if isinstance(clause, Unadvised)), "")
    return f"nothing is advised: {reason}" if reason else "nothing is advised"


def _of_finding(finding: Finding, sources: Sources, whys: list[str], *, unsafe: bool) -> Iterator[Candidate]:
    for advice in finding.fix:
        kind = kind_of(advice.slug)
        if advice.how_sure == "idea":  # its conditions are not shown: what `fix` tries of the same kind, it finds by its own rules
            continue
        if kind.applied == "rule":  # `moves` says what comes of it
            continue
        if kind.applied is None:
            whys.append(f"`{advice.slug}` is not applied automatically: {advice.words}")
        elif kind.gives_up is not None and not unsafe:
            whys.append(f"`{advice.slug}` gives something up ({kind.gives_up}): use --unsafe to try it")
        else:
            try:
                yield _candidate(finding, advice, sources, kind)
            except DynadiagError as error:
                whys.append(f"`{advice.slug}` cannot be applied: {error.message}")


def _candidate(finding: Finding, advice: Advice, sources: Sources, kind: Kind) -> Candidate:
    edits = tuple(_edits(finding, advice, sources, kind))
    spans, whys = [], list[str | None]((None, None))
    for edit in edits:
        _, text = sources.text(edit.file)
        changed, _ = applied(text, edit)
        spans.append(placed(text, edit))
        if edit.old:
            _check_names(ast.parse(changed), advice)
            if kind.keeps_tensor:
                _check_reads(ast.parse(text), spans[-1])
    if kind.selects:
        whys = [
            legality.why_not_selected("\n".join(edits[0].new).replace("return ", "", 1), gradients=literal) for literal in (False, True)
        ]
        if whys[0] is not None:
            raise EditError(f"both sides would be computed, and {whys[0]}")
    return Candidate(
        id="",
        slug=advice.slug,
        text=advice.words,
        edits=edits,
        spans=tuple(spans),
        cures=(finding.fingerprint,),
        gives_up=kind.gives_up,
        gradients_why=whys[1],
        settings=library_settings(advice.entry),
        branch=kind.gives_up is None and any(map(has_branch, edits)),
    )


def has_branch(edit: Edit) -> bool:
    """Whether the old lines decide between two sides: what is in their place has to be right on both."""
    code = "\n".join(edit.old)
    for rows in (code, f"{code}\n    pass"):  # a header alone: `for x in xs:`
        try:
            tree = ast.parse(rows)
        except SyntaxError:
            continue
        return holds(tree, ast.If, ast.IfExp)
    return bool(edit.old)


def _edits(finding: Finding, advice: Advice, sources: Sources, kind: Kind) -> Iterator[Edit]:
    if kind.applied == "option":
        rows = tuple((advice.after or "").splitlines())
        if not rows or any(not re.fullmatch(r"torch\._dynamo\.config\.\w+(?: = (?:True|False|\d+)|\.add\(print\))", row) for row in rows):
            raise EditError("the option needs more than one line of its own")
        yield Edit(file=sources.script, old=(), new=rows)
        return
    if advice.entry is not None:
        yield from library_edits(advice.entry, sources.script if finding.where is None else finding.where.file, sources)
        return
    if finding.where is None or advice.before is None or advice.after is None:
        raise EditError("the line is not recorded")
    file, _ = sources.text(finding.where.file)
    after = _with_clones(advice.after) if kind.keeps_tensor else advice.after
    yield Edit(file=file, old=tuple(advice.before.splitlines()), new=tuple(after.splitlines()), near=finding.where.line)
    if kind.prints:
        yield Edit(file=sources.script, old=(), new=(PRINT_OPTION,))


def _with_clones(code: str) -> str:
    """A number that was read stays what it was, a tensor that shares memory does not: `x.detach()` of a name becomes a copy."""

    def cloned(call: Any, _: object) -> cst.Call:
        return cst.Call(cst.Attribute(call, cst.Name("clone")))

    return str(cst.ensure_type(matchers.replace(cst.parse_module(code), _SHARED, cloned), cst.Module).code)


def _check_names(tree: ast.Module, advice: Advice) -> None:
    """Raise EditError where an import that the new code needs is not there; that of torch itself `with_torch_named` sees to."""
    there = {ast.unparse(statement) for statement in tree.body if isinstance(statement, ast.Import | ast.ImportFrom)}
    there |= {f"import {TORCH}"} | {
        f"import {alias.name}" for child in tree.body if isinstance(child, ast.Import) for alias in child.names if alias.asname is None
    }
    missing = [word for word in advice.imports if word not in there]
    if missing:
        raise EditError(f"the file does not contain `{missing[0]}`")


def _check_reads(tree: ast.Module, span: Span) -> None:
    inside = [node for node in nodes_in(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    around = [item for item in inside if item.lineno <= span.begin <= (item.end_lineno or 0)]
    function = max(around, key=lambda element: element.lineno, default=None)
    why = "the line is in no function" if function is None else legality.why_not_kept(function, range(span.begin, span.end))
    if why is not None:
        raise EditError(why)


def chosen(all_: Sequence[Candidate], report: Report, *, select: Sequence[str], ignore: Sequence[str]) -> list[Candidate]:
    """Those that cure a finding of these codes, ids, fingerprints or kinds of advice (none: all), and none to ignore."""
    names = _names(report)

    def named(candidate: Candidate, words: Sequence[str]) -> bool:
        return bool({candidate.slug, *(name for cure in candidate.cures for name in names[cure])} & set(words))

    return [item for item in all_ if (not select or named(item, select)) and not named(item, ignore)]


def _names(report: Report) -> Mapping[str, tuple[str, ...]]:
    names = {
        cure: (finding.fingerprint, finding.code, finding.id) for finding in report.findings for cure in libraries.cures_of(finding, report)
    }
    return names | {item.fingerprint: (item.fingerprint, item.code, item.id) for item in report.findings}
