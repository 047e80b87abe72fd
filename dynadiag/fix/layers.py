"""What stands behind what is cured: candidates for the findings of the changed program, as edits of its texts."""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from dynadiag.changes.change import Candidate
from dynadiag.changes.edits import Edit
from dynadiag.errors import EditError
from dynadiag.fix import texts
from dynadiag.fix.candidates import candidates
from dynadiag.fix.inside.running import WATCH
from dynadiag.fix.search import Tried
from dynadiag.fix.sources import Sources
from dynadiag.model.report import Report

_WATCHED = re.compile(rf"{WATCH}\(([\w.]+)\)")


def candidates_behind(
    report: Report, sources: Sources, base: Sequence[Candidate], tried: Iterable[Tried], *, layer: int, unsafe: bool
) -> list[Candidate]:
    """What can be tried for the findings of a program with the changes `base`, whose report this is; nothing that was wrong before.

    Files that the program's own findings did not name are read into `sources`. In installed packages nothing is changed twice.
    """
    now = texts.changed(sources.texts, base)
    behind = Sources(report, Path(sources.script), now)
    found, _ = candidates(report, behind, unsafe=unsafe)
    modules = {*sources.modules, *behind.modules}
    for file, text in behind.texts.items():
        if file not in behind.modules:
            sources.texts.setdefault(file, text)
    wrong = {_named(item.candidate) for item in tried if item.verdict is not None and not item.kept and not item.verdict.by_findings}
    made = (_on_top(item, base, sources.texts, now) for item in found if modules.isdisjoint(edit.file for edit in item.edits))
    kept = [item for item in made if item is not None and _named(item) not in wrong]
    return [replace(item, id=f"x{layer}-{number}", layer=layer) for number, item in enumerate(kept, start=1)]


def _named(candidate: Candidate) -> tuple[str, tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...]]:
    return candidate.slug, tuple((edit.file, edit.old, edit.new) for edit in candidate.edits)


def _on_top(candidate: Candidate, base: Sequence[Candidate], own: Mapping[str, str], now: Mapping[str, str]) -> Candidate | None:
    """The candidate with its lines in the program's own texts, and its edits as proofs make them; None where these cannot be made."""
    with suppress(EditError):
        rows = tuple(
            own_row(own[edit.file], now.get(edit.file, own[edit.file]), span.begin)
            for edit, span in zip(candidate.edits, candidate.spans, strict=True)
        )
        return replace(candidate, rows=rows, edits=tuple(_as_observed(edit, base) for edit in candidate.edits))
    return None


def own_row(own: str, now: str, row: int) -> int:
    """The line of a text of which a row of the new text is; that behind which it was put where there is none."""
    matcher = difflib.SequenceMatcher(None, own.splitlines(), now.splitlines(), autojunk=False)
    for _, begin, end, first, last in matcher.get_opcodes():
        if first < row <= last:
            return min(begin + row - first, max(end, begin + 1))
    return row


def _as_observed(edit: Edit, base: Sequence[Candidate]) -> Edit:
    """The edit with the lines that proofs have where an earlier change is observed: what compiles a smaller region stays apart there."""
    seen = dict(_observed_rows(base))
    old = tuple(seen.get(row, row) for row in edit.old)
    if old == edit.old:
        return edit
    if edit.observed is not None:  # what calls this is watched already
        new = tuple(_WATCHED.sub(r"\1", row) for row in edit.observed)
    else:
        new = tuple(_merged(was, seen.get(was, was), row) for was, row in itertools.zip_longest(edit.old, edit.new, fillvalue=""))
    return replace(edit, seen=old, observed=new)


def _observed_rows(base: Sequence[Candidate]) -> Iterator[tuple[str, str]]:
    for edit in (edit for change in base for edit in change.edits):
        if edit.observed is not None and len(edit.observed) >= len(edit.new):  # a proof may have one more, at the end
            yield from zip(edit.new, edit.observed, strict=False)


def _merged(base: str, seen: str, new: str) -> str:
    """A new row with what the observed one has besides. Raises EditError where more than one piece was put into the row."""
    if base in (seen, new):
        return new if base == seen else seen
    begin = _alike(base, new)
    end = _alike(base[begin:][::-1], new[begin:][::-1])
    if begin + end < len(base) or seen[:begin] != base[:begin]:
        raise EditError("the line is watched in proofs, and cannot be changed there")
    return f"{seen[:begin]}{new[begin : len(new) - end]}{seen[begin:]}"


def _alike(text: str, other: str) -> int:
    """How many characters both begin with."""
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(text, other, strict=False)))
