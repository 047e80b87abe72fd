"""A sweep, a query and a comparison as documents, and the matrix page, each cell of which leads to the page of its run."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Annotated, Any, Literal, TypedDict
from urllib.parse import quote

from rich.cells import cell_len

import dynadiag
from dynadiag.facts.wording import plural
from dynadiag.model.json_keys import Count
from dynadiag.render import finite_json
from dynadiag.render.document import Cell, Column, Document, Headline, Part, Section, Tone, cells
from dynadiag.render.html import page as html_page
from dynadiag.render.sanitise import clean, json_escaped
from dynadiag.sweep.compare import RowChange, SweepComparison
from dynadiag.sweep.query import Table
from dynadiag.sweep.rows import WELL, TaskRow, groups_of, statuses
from dynadiag.sweep.session import TASKS, SweepState

_MOST_SHOWN = 20
_WIDTH = 300
_WIDEST = 72
_CELL = 80
_WORDS = {"out_of_memory": "out of memory", "timeout": "timed out"}


def progress_of(state: SweepState, left_s: float | None) -> str:
    """Where a sweep stands in one line; after its last task it can still reduce failures."""
    done = len(state.tasks) - state.missing
    failed = sum(row.verb != "minify" for row in state.failed)
    reduced = sum(row.verb == "minify" for row in state.rows)
    left = "" if left_s is None or not left_s or done - state.before < 3 else f", about {_duration(left_s)} left"
    return f"{done} of {len(state.tasks)} tasks, {failed} failed{f', {reduced} reduced' if reduced else ''}{left}"


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def document_of(state: SweepState) -> Document:
    """What came of a sweep: how many tasks ended how, the commonest findings, and what failed."""
    rows = tuple(row for row in state.rows if row.verb != "minify")
    failed = [row for row in state.failed if row.verb != "minify"]
    counts = ", ".join(f"{count} {_word(status)}" for status, count in statuses(rows))
    heads = [
        Headline(word="FAILED" if failed else "DONE", what=f"{plural(len(rows), 'task')}", said=counts, tone="bad" if failed else "good")
    ]
    if state.missing:
        heads.append(
            Headline(
                word="unfinished",
                said=f"{plural(state.missing, 'task')} without a row; the same command continues the sweep",
                tone="unclear",
            )
        )
    heads += [Headline(word="not written", said=name, tone="bad") for name in state.unwritten[:_MOST_SHOWN]]
    facts = [f"{state.before} of them done before"] if state.before else []
    return Document(
        title="dynadiag sweep",
        facts=tuple(facts),
        headlines=tuple(heads),
        sections=tuple(_sections(state.rows, failed, str(state.folder))),
        name="rows.jsonl",
    )


def _word(status: str) -> str:
    return _WORDS.get(status, status)


def _sections(rows: Sequence[TaskRow], failed: Sequence[TaskRow], folder: str) -> Iterator[Section]:
    yield _arms(rows)
    if any(row.findings for row in rows):
        yield _commonest(rows, folder)
    if reduced := [row for row in rows if row.verb == "minify"]:
        yield Section(
            title="Reproducers, one for each kind of failure",
            columns=(Column("subject"), Column("arm"), Column("reduced"), Column("folder")),
            items=[
                cells(row.subject, row.arm, Part(row.verdict or row.reason or row.status, _WIDTH), f"{folder}/{TASKS}/{row.key}")
                for row in reduced
            ],
        )
    if failed:
        yield _failures(failed, folder)
    if skipped := {(row.subject, row.reason): row for row in rows if row.status == "skipped"}:
        yield Section(
            title="Skipped",
            columns=(Column("subject"), Column("because")),
            items=[cells(subject, Part(reason or "", _WIDTH)) for subject, reason in list(skipped)[:_MOST_SHOWN]],
            closing=_rest(list(skipped), f"dynadiag sweep query {folder} status"),
        )


def _arms(rows: Sequence[TaskRow]) -> Section:
    groups: dict[tuple[str, str], list[TaskRow]] = {}
    for row in rows:
        groups.setdefault((row.arm, row.verb), []).append(row)
    return Section(
        title="Arms",
        columns=(
            Column("arm", fold=False),
            Column("verb", fold=False),
            *(
                Column(name, numeric=True, fold=False)
                for name in ("tasks", "done", "skipped", "failed", "broken", "breaks", "recompiles", "CPU s")
            ),
        ),
        items=[_arm_row(arm, verb, listed) for (arm, verb), listed in groups.items()],
        closing="broken: tasks with a graph break; breaks: places where graphs break" if any(row.graphs for row in rows) else "",
    )


def _commonest(rows: Sequence[TaskRow], folder: str) -> Section:
    codes: dict[str, list[tuple[str, str]]] = {}
    for row in rows:
        for finding in row.findings:
            codes.setdefault(finding.code, []).append((row.subject, finding.title))
    ranked = sorted(codes.items(), key=lambda item: (-len({subject for subject, _ in item[1]}), item[0]))
    return Section(
        title="Findings, in most subjects first",
        columns=(Column("code", fold=False), Column("subjects", numeric=True), Column("findings", numeric=True), Column("one of them")),
        items=[
            (
                (Part(code, code=True),),
                (Part(str(len({name for name, _ in said}))),),
                (Part(str(len(said))),),
                (Part(said[0][1], _WIDTH),),
            )
            for code, said in ranked[:_MOST_SHOWN]
        ],
        closing=_rest(ranked, f"dynadiag sweep query {folder} codes"),
    )


def _failures(failed: Sequence[TaskRow], folder: str) -> Section:
    grouped = groups_of(failed)
    return Section(
        title="Failures, equal ones together",
        columns=(Column("ended", fold=False), Column("tasks", numeric=True), Column("subjects"), Column("because")),
        items=[
            cells(
                Part(_word(listed[0].status), tone="bad"),
                str(len(listed)),
                Part(", ".join(_few(listed)), _WIDTH),
                Part(listed[0].reason or "", _WIDTH),
            )
            for listed in grouped[:_MOST_SHOWN]
        ],
        closing=_rest(grouped, f"dynadiag sweep query {folder} failures"),
    )


def _rest(listed: Sequence[object], how: str) -> str:
    """How many are not shown, and where they are."""
    return "" if len(listed) <= _MOST_SHOWN else f"{len(listed) - _MOST_SHOWN} more: {how}"


def _few(rows: Sequence[TaskRow]) -> list[str]:
    names = list(dict.fromkeys(row.subject for row in rows))
    return names if len(names) <= 3 else [*names[:3], f"{len(names) - 3} more"]


def _arm_row(arm: str, verb: str, rows: Sequence[TaskRow]) -> tuple[Cell, ...]:
    return cells(
        arm,
        verb,
        str(len(rows)),
        *(str(sum(row.status == status for row in rows)) for status in WELL),
        str(sum(row.status not in WELL for row in rows)),
        _total([None if row.break_sites is None else bool(row.break_sites) for row in rows]),
        _total([row.break_sites for row in rows]),
        _total([row.recompiles for row in rows]),
        f"{sum(row.cpu_s or 0 for row in rows):.0f}",
    )


def _total(counts: Sequence[int | None]) -> str:
    """The sum of what is known; nothing where nothing is."""
    known = [count for count in counts if count is not None]
    return str(sum(known)) if known else ""


def page_of(state: SweepState) -> str:
    """The matrix as a page: a row for each subject, a column for each arm and verb."""
    columns = list(dict.fromkeys([*((task.arm.name, task.verb) for task in state.tasks), *((row.arm, row.verb) for row in state.rows)]))
    found = {(row.subject, row.arm, row.verb): row for row in state.rows}
    subjects = list(dict.fromkeys(task.subject for task in state.tasks))
    return html_page(
        "sweep.html",
        title="dynadiag sweep",
        version=dynadiag.__version__,
        sections=[("matrix", "Matrix"), ("legend", "What the cells say")],
        counts=[(_word(name), count) for name, count in statuses(state.rows)],
        columns=[clean(": ".join((arm, verb) if len({text for _, text in columns}) > 1 else (arm,)), limit=80) for arm, verb in columns],
        rows=[
            {"subject": clean(subject, limit=200), "cells": [_cell(state, found.get((subject, *column))) for column in columns]}
            for subject in subjects
        ],
    )


def _cell(state: SweepState, row: TaskRow | None) -> dict[str, Any]:
    if row is None:
        return {"word": "", "said": "", "whole": "", "href": None, "tone": "plain"}
    place = state.folder / TASKS / row.key
    name = next((literal for literal in ("report.html", "parity.html", "output.txt") if (place / literal).is_file()), None)
    told = [
        plural(count, word)
        for count, word in ((row.break_sites, "break"), (row.recompiles, "recompile"), (row.fallbacks, "fallback"))
        if count
    ]
    said = row.reason or row.verdict or ", ".join(told)
    clean_run = row.status == "done" and not told
    return {
        "word": _word(row.status) if row.status != "done" else "clean" if clean_run and row.graphs else "done" if not told else "",
        "said": clean(said, limit=_CELL),
        "whole": clean(said, limit=_WIDTH),
        "href": None if name is None else quote(f"{TASKS}/{row.key}/{name}"),
        "tone": _tone(row, clean_run=clean_run),
    }


def _tone(row: TaskRow, *, clean_run: bool) -> Tone:
    """Green is what was seen to be well: graphs that were compared and are equal, a run with nothing to tell."""
    if row.status not in WELL:
        return "bad"
    if row.status == "skipped" or (row.verdict is not None and row.verb != "parity"):
        return "plain"
    well = clean_run if row.verdict is None else re.match(r"0 differences in [1-9]", row.verdict) is not None
    return "good" if well else "unclear"


def document_of_table(table: Table, shown: str) -> Document:
    """The answer of a query."""
    return Document(
        title="dynadiag sweep query",
        sections=(
            Section(
                title=shown,
                said="" if table.rows else "no rows",
                columns=tuple(Column(name, numeric=_numeric(table, number)) for number, name in enumerate(table.columns)),
                items=[cells(*(Part(_text(value), _WIDTH) for value in row)) for row in table.rows],
            ),
        ),
    )


def text_of(table: Table) -> str:
    """The answer as a table that is as wide as it has to be: a number is never cut, a text after 72 characters."""
    shown = [[clean(name, limit=_WIDEST) for name in table.columns]]
    shown += [[clean(_text(value), limit=_WIDEST) for value in row] for row in table.rows]
    widths = [max(map(cell_len, column)) for column in zip(*shown, strict=True)]
    right = [_numeric(table, number) for number in range(len(table.columns))]
    lines = []
    for row in shown:
        padded = [
            " " * (width - cell_len(text)) + text if number else text + " " * (width - cell_len(text))
            for text, width, number in zip(row, widths, right, strict=True)
        ]
        lines.append("  ".join(padded).rstrip())
    return "\n".join([*lines, "" if table.rows else "no rows"]).rstrip() + "\n"


def _numeric(table: Table, number: int) -> bool:
    values = [row[number] for row in table.rows if row[number] is not None]
    return bool(values) and all(isinstance(value, (int, float)) for value in values)


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, (list, tuple, dict)):
        return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else json.dumps(value, default=str)
    return str(value)


def document_of_comparison(found: SweepComparison, old: str, new: str) -> Document:
    """What one sweep has gained and lost against another."""
    worse, better = found.regressions, [change for change in found.changes if change.what == "better"]
    if worse:
        head = Headline(word="Worse", what=plural(len({item.subject for item in worse}), "subject"), said=_counts(worse), tone="bad")
    elif better:
        head = Headline(
            word="Better", what=plural(len({element.subject for element in better}), "subject"), said=_counts(better), tone="good"
        )
    else:
        head = Headline(word="No difference", what=f"{plural(found.pairs, 'task')} compared", tone="good")
    facts = [
        f"{word}: {path}, torch {', '.join(versions)}" for word, path, versions in zip(("old", "new"), (old, new), found.torch, strict=True)
    ]
    facts.append(f"{found.pairs} tasks in both, {found.unchanged} of them unchanged")
    facts += [f"only {word}: {plural(len(names), 'task')}" for word, names in (("old", found.only_old), ("new", found.only_new)) if names]
    sections = [
        Section(
            title=title,
            columns=(Column("subject"), Column("arm"), Column("verb"), Column("code", fold=False), Column("old"), Column("new")),
            items=listed[:_MOST_SHOWN],
            row=_change,
            closing=_rest(listed, "--format json"),
        )
        for title, listed in (("Worse", worse), ("Better", better))
        if listed
    ]
    return Document(title="dynadiag sweep diff", facts=tuple(facts), headlines=(head,), sections=tuple(sections), name="--format json")


def _counts(changes: Sequence[RowChange]) -> str:
    ends = sum(change.kind == "status" for change in changes)
    told = [plural(ends, "task") + " that ended in another way"] if ends else []
    if len(changes) > ends:
        told.append(plural(len(changes) - ends, "finding") + (" new" if changes[0].what == "worse" else " gone"))
    return ", ".join(told)


def _change(change: RowChange) -> tuple[Cell, ...]:
    code = () if change.finding is None else (Part(change.finding.code, code=True),)
    return (*cells(change.subject, change.arm, change.verb), code, (Part(change.old, _WIDTH),), (Part(change.new, _WIDTH),))


class HeadKeys(TypedDict):
    """What all of them begin with."""

    schema_version: Literal[1]
    dynadiag: str


class SweepKeys(TypedDict):
    """A sweep."""

    tasks: Annotated[Count, "tasks of this shard"]
    done_before: Annotated[Count, "tasks that had a row before this call"]
    counts: Annotated[Mapping[str, int], "rows by status"]
    unwritten: Annotated[list[str], "tasks that ran and whose row could not be written"]
    rows: Annotated[list[dict[str, Any]], list[TaskRow]]


class QueryKeys(TypedDict):
    """A query."""

    columns: list[str]
    rows: list[list[Any]]


class WorseKeys(TypedDict):
    """A comparison: this before all of `SweepComparison`."""

    worse: bool


def as_json(found: SweepState | SweepComparison | Table) -> str:
    """All of it as JSON."""
    given: Mapping[str, Any]
    if isinstance(found, SweepState):
        state: SweepKeys = {
            "tasks": len(found.tasks),
            "done_before": found.before,
            "counts": dict(statuses(found.rows)),
            "unwritten": list(found.unwritten),
            "rows": [asdict(row) for row in found.rows],
        }
        given = state
    elif isinstance(found, Table):
        answer: QueryKeys = {"columns": list(found.columns), "rows": [[_json_value(value) for value in row] for row in found.rows]}
        given = answer
    else:
        given = {"worse": bool(found.regressions), **asdict(found)}
    return json_escaped(finite_json.dumps({"schema_version": 1, "dynadiag": dynadiag.__version__, **given}, indent=1)) + "\n"


def _json_value(value: Any) -> Any:
    return value if value is None or isinstance(value, (bool, int, float, str, list, dict)) else str(value)
