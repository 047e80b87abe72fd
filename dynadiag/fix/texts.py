"""The texts of the program's files with some changes made, plain or with the conditions marked that a change turned into a selection."""

from __future__ import annotations

import ast
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from dynadiag.changes.change import Candidate
from dynadiag.changes.condition import split_python_part
from dynadiag.changes.edits import Span, applied, placed, with_first
from dynadiag.changes.legality import selections
from dynadiag.errors import EditError
from dynadiag.fix.inside.running import CHOOSE, SELECT
from dynadiag.fix.torch_name import names_of_torch
from dynadiag.source.imports import TORCH
from dynadiag.source.tree import nodes_in, nodes_of

Mark = tuple[int, int, str, str]
"""A line, a column in bytes, what is put there, and the change that it is for."""


def changed(originals: Mapping[str, str], changes: Sequence[Candidate], *, observed: bool = False, marked: bool = False) -> dict[str, str]:
    """The new texts of the files that change, layer on layer. Raises EditError where two changes touch the same lines.

    `observed`: with the lines that proofs run, which are watched as the original ones were.
    `marked`: with `SELECT` around the conditions of selections, so that a run can force them.
    """
    texts: dict[str, str] = {}
    for layer in sorted({change.layer for change in changes}):
        own = [change for change in changes if change.layer == layer]
        texts |= _of_layer({**originals, **texts}, own, observed=observed, marked=marked)
    return texts


def _of_layer(originals: Mapping[str, str], changes: Sequence[Candidate], *, observed: bool, marked: bool) -> dict[str, str]:
    texts: dict[str, str] = {}
    for file in {edit.file for change in changes for edit in change.edits}:
        work = [
            (span, edit, element)
            for element in changes
            for edit, span in zip(element.edits, element.spans, strict=True)
            if edit.file == file
        ]
        # The same option is set once.
        work = list({(edit.old, edit.new, span): (span, edit, entry) for span, edit, entry in work}.values())
        work.sort(key=lambda item: (item[0].begin, item[0].end), reverse=True)
        _check_apart([span for span, *_ in work])
        text, places = originals[file], list[tuple[Span, Candidate]]()
        for _, edit, candidate in work:
            before = text.count("\n")
            if observed:
                edit = replace(edit, old=edit.seen or edit.old, new=edit.new if edit.observed is None else edit.observed)
            text, now = applied(text, edit)
            more = text.count("\n") - before
            places = [(now, candidate), *((Span(span.begin + more, span.end + more), each) for span, each in places)]
        if any(edit.needs_torch for _, edit, _ in work):
            before = text.count("\n")
            text = with_first(text, f"import {TORCH}")
            more = text.count("\n") - before
            places = [(Span(span.begin + more, span.end + more), one) for span, one in places]
        marks = [mark for span, one in places if marked and one.branch for mark in _selected(text, span, one)]
        texts[file] = _with_marks(text, marks)
    return texts


def with_conditions(originals: Mapping[str, str], changes: Sequence[Candidate]) -> dict[str, str]:
    """The original texts with `CHOOSE` around the conditions of the branches that these changes rewrite."""
    marks: dict[str, list[Mark]] = {}
    for change in changes:
        if change.branch:
            edit, text = change.edits[0], originals[change.edits[0].file]
            span = placed(text, replace(edit, near=change.rows[0])) if change.layer else change.spans[0]
            marks.setdefault(edit.file, []).extend(_condition(text, span, change))
    return {file: _with_marks(originals[file], found) for file, found in marks.items()}


def _check_apart(spans: Sequence[Span]) -> None:
    """Spans come last first; those that are empty only put lines between others."""
    for below, above in pairwise(spans):
        if above.end > below.begin and below.begin != below.end and above.begin != above.end:
            raise EditError("another change of the same lines is kept already")


def _condition(text: str, span: Span, candidate: Candidate) -> Iterator[Mark]:
    inside = [node for node in nodes_in(ast.parse(text)) if isinstance(node, ast.If | ast.IfExp) and span.begin <= node.lineno < span.end]
    first = min(inside, key=lambda node: (node.lineno, node.col_offset), default=None)
    if first is None:
        raise EditError("the branch is not where it was recorded")
    _, decides = split_python_part(first.test)
    yield from _around(decides, CHOOSE, candidate)


def _selected(text: str, span: Span, candidate: Candidate) -> Iterator[Mark]:
    inside = [node for node in nodes_of(ast.stmt, ast.parse(text)) if span.begin <= node.lineno < span.end]
    names: set[str] = set()
    for node in inside:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "taken":
            names.add("taken")
            yield from _around(node.value, SELECT, candidate)
    for node in inside:
        for call in selections(node, {TORCH, *names_of_torch(text, node.lineno)}):
            if ast.unparse(call.args[0]) not in names:
                yield from _around(call.args[0], SELECT, candidate)


def _around(node: ast.expr, name: str, candidate: Candidate) -> Iterator[Mark]:
    yield node.lineno, node.col_offset, f"{name}({candidate.id!r}, ", candidate.id
    yield node.end_lineno or node.lineno, node.end_col_offset or 0, ")", candidate.id


def _with_marks(text: str, marks: Sequence[Mark]) -> str:
    rows = [row.encode() for row in io.StringIO(text)]
    # Behind before in front of, at one column: the end of one expression and the beginning of another.
    for line, column, put, _ in sorted(set(marks), key=lambda mark: (mark[0], mark[1], mark[2] == ")"), reverse=True):
        row = rows[line - 1]
        rows[line - 1] = row[:column] + put.encode() + row[column:]
    return b"".join(rows).decode()
