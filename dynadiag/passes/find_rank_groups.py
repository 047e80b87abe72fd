"""Which ranks compiled the same, where each group first differs from the largest, and what else is odd about ranks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from dynadiag.facts.fingerprint import Subject, fingerprints
from dynadiag.facts.wording import difference_in_words, group_in_words, plural
from dynadiag.model import codes
from dynadiag.model.clauses import Effect, Happened
from dynadiag.model.digest import FirstDifference, RankComparison, RankGroup
from dynadiag.model.location import Location
from dynadiag.model.report import Cost, Finding, PassResult
from dynadiag.model.run import Run
from dynadiag.passes.base import Priority

_SHOWN = 4
# Of what tells ranks apart other source explains the rest, and the first difference comes before what follows from it.
_FIRST = {codes.RANKS_SOURCE: 3, codes.RANKS_APART: 2, codes.RANKS_COLLECTIVES: 1}


def find_rank_groups(run: Run) -> PassResult:
    """The groups of ranks, their first differences, differing collectives and ranks that are missing or out of step, as findings.

    It reads what `trace` compared by digests (`Run.ranks`); nothing where fewer than two ranks were recorded.
    """
    found = run.ranks
    if found is None:
        return PassResult()
    notes = (_alike(found),) if len(found.groups) == 1 else ()
    notes = (*notes, *(trouble.text for trouble in found.troubles if trouble.kind == "own_value"))
    rows = [*_other_source(found), *_apart(found), *_collectives(found), *_troubles(found, run)]
    marks = fingerprints([Subject(row.code, row.where) for row in rows], run)
    named = (replace(finding, id=f"n{at}", fingerprint=mark) for at, (finding, mark) in enumerate(zip(rows, marks, strict=True), start=1))
    return PassResult(findings=tuple(named), notes=notes)


def _alike(found: RankComparison) -> str:
    return f"{plural(found.ranks, 'rank')} compared by their digests compiled the same: {plural(found.events, 'event')} in all."


def _where(first: FirstDifference | None) -> Location | None:
    return None if first is None or first.file is None else Location(first.file, first.line, None)


def _apart(found: RankComparison) -> Iterator[Finding]:
    largest, *others = found.groups
    told = [group for group in others if group.first is not None]
    if not told:
        return
    texts = [f"{group_in_words(group).capitalize()}: {difference_in_words(group.first)}." for group in told[:_SHOWN] if group.first]
    left = len(others) - _SHOWN
    more = f"The table of groups has {plural(left, 'more group')}." if left > 0 else ""
    base = "are alike" if len(largest.ranks) > 1 else "is the group that the others are compared with"
    alike = f"{group_in_words(largest).capitalize()} {base}."
    yield _finding(codes.RANKS_APART, found, (*texts, more, alike), others, _where(told[0].first))


def _other_source(found: RankComparison) -> Iterator[Finding]:
    apart = [group for group in found.groups if group.sources]
    if not apart:
        return
    texts = []
    for group in apart[:_SHOWN]:
        files = f" (in {plural(group.source_files, 'file')})" if group.source_files > 1 else ""
        shown = "; ".join(f"{source.here}, where the others have {source.there}" for source in group.sources)
        texts.append(f"{group_in_words(group).capitalize()} ran other source{files}: {shown}.")
    left = len(apart) - _SHOWN
    more = f"So did {plural(left, 'more group')}." if left > 0 else ""
    yield _finding(codes.RANKS_SOURCE, found, (*texts, more), apart, _where(apart[0].sources[0]))


def _collectives(found: RankComparison) -> Iterator[Finding]:
    apart = [group for group in found.groups if group.collectives is not None]
    if not apart:
        return
    texts = [
        f"{group_in_words(group).capitalize()}: collective {first_difference.before + 1:,} is {first_difference.here or 'missing'}, "
        f"where the others have {first_difference.there or 'none'}."
        for group in apart[:_SHOWN]
        if (first_difference := group.collectives) is not None
    ]
    effect = Effect("Ranks of one process group that call collectives in another order or with other shapes wait for each other")
    yield _finding(codes.RANKS_COLLECTIVES, found, texts, apart, _where(apart[0].collectives), effect)


def _troubles(found: RankComparison, run: Run) -> Iterator[Finding]:
    rows = [trouble for trouble in found.troubles if trouble.kind not in ("own_value", "versions")]
    texts = [row.text for row in rows]
    ranks = {rank for rank_trouble in rows for rank in rank_trouble.ranks}
    if (failed := first_failed(run)) is not None:
        ranks.add(failed[0])
        texts.insert(0, f"torchrun saw rank {failed[0]} fail first, {failed[1]}.")
    if texts:
        groups = [RankGroup(mark="", ranks=tuple(sorted(ranks)), representative=-1, events=0)]
        yield _finding(codes.RANK_TROUBLE, found, texts, groups, None)


def _finding(
    code: str, found: RankComparison, happened: Iterable[str], groups: list[RankGroup], where: Location | None, *effects: Effect
) -> Finding:
    ranks = sorted(rank for group in groups for rank in group.ranks)
    named = "" if not ranks else f": rank {ranks[0]}" if len(ranks) == 1 else f": {plural(len(ranks), 'rank')} of {found.ranks:,}"
    return Finding(
        id="n0",
        fingerprint="",
        code=code,
        severity=codes.severity_of(code),
        title=f"{codes.title_of(code)}{named}",
        where=where,
        clauses=(*(Happened(text) for text in happened if text), *effects),
        fix=(),
        cost=Cost(value=float(len(ranks)), unit="ranks", basis="counted"),
        evidence=(),
        rank=(float(Priority.RANKS_DIFFER if code == codes.RANK_TROUBLE else Priority.RANKS_APART), -1e6, -float(_FIRST.get(code, 0))),
    )


# What torchrun says of the ranks that it started: the first that failed, as it saw it.

_FIRST_FAILED = re.compile(
    r"Root Cause \(first observed failure\):\s*\[\d{1,6}\]:[^\[]{0,400}?\brank\s*: (\d{1,6})\b"
    r"[^\[]{0,200}?\bexitcode\s*: (-?\d{1,5})\b[^\n(]*(?:\(pid: \d{1,9}\))?[^\n(]*(?:\((SIG\w{1,12})\))?"
)  # the text of torch.distributed.elastic.multiprocessing.errors.ChildFailedError, 2.6 to 2.15


def first_failed(run: Run) -> tuple[int, str] | None:
    """The rank that torchrun saw fail first, with how in words; None where no process of the run says so."""
    for problem in run.problems:
        found = _FIRST_FAILED.search(problem.text) if problem.kind == "uncaught" and "ChildFailedError" in problem.text[:200] else None
        if found is not None:
            return int(found[1]), f"by {found[3]}" if found[3] else f"with exit status {found[2]}"
    return None
