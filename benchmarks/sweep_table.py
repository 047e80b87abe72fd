"""The page about a real sweep over two versions of torch: `python benchmarks/sweep_table.py [SWEEP]`.

The rows of SWEEP go into benchmarks/sweep_models/rows.jsonl without what names the machine, and docs/sweep-evidence.md is written from
them. Without SWEEP the page is written from the rows that are there.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "cli")]

from dynadiag.sweep.compare import RowChange, compare  # noqa: E402
from dynadiag.sweep.rows import JOURNAL, WELL, TaskRow, append, read  # noqa: E402

HERE = Path(__file__).resolve().parent / "sweep_models"
PAGE = ROOT / "docs" / "sweep-evidence.md"
ARMS = ("torch 2.11", "torch 2.15")
_MACHINE = re.compile(r"(?<![\w./-])/(?:[^\s'\":]*/site-packages/|[^\s'\":]*/)")
"""What a path says about the machine: all before the package, or before the last part."""


def without_machine(row: TaskRow) -> TaskRow:
    """The row without the host and its paths."""

    def short(text: str | None) -> str | None:
        return None if text is None else _MACHINE.sub("", text)

    found = tuple(replace(one, file=short(one.file), title=short(one.title) or "") for one in row.findings)
    return replace(row, host=None, reason=short(row.reason), findings=found)


def page(rows: Sequence[TaskRow]) -> str:
    """The page as Markdown, all of it from the rows."""
    found = compare(rows, rows, ARMS)
    both = sorted({row.subject for row in rows if row.arm == ARMS[0]} & {row.subject for row in rows if row.arm == ARMS[1]})
    kept = [row for row in rows if row.subject in both]
    days = sorted({(row.started_at or "")[:10] for row in kept})
    lines = [
        f"# A sweep of {len(both)} models by two versions of torch",
        "",
        "Written by `python benchmarks/sweep_table.py` from `benchmarks/sweep_models/rows.jsonl`, the rows of"
        " `dynadiag sweep benchmarks/sweep_models/matrix.toml` (without paths of the machine). "
        f"Measured on {' and '.join(days)}, two cores that also ran other programs, CPU only, backend `eager`, inference, random"
        " weights (those of transformers with small sizes), each model called three times. Python "
        f"{', '.join(sorted({row.python or '?' for row in kept}))}; {_versions(kept)}. The counts do not depend on the load; CPU seconds do"
        " a little.",
        "",
        "## By library and version",
        "",
        *_table(
            ("library", "torch", "models", *WELL, "failed", "with breaks", "break sites", "recompiles", "CPU s a model"),
            _totals(kept),
        ),
        "",
        f"## What {ARMS[1]} changes",
        "",
        f"`dynadiag sweep diff benchmarks/sweep_models --arms '{','.join(ARMS)}'`: {found.unchanged} of {found.pairs} models unchanged.",
        "",
        *_changes(found.changes),
        "",
        "## Commonest findings",
        "",
        *_table(("code", *(f"models, {arm}" for arm in ARMS), "one of them"), _codes(kept)),
        "",
        "## Models",
        "",
        "Break sites / recompiles, or how the task ended; graphs in brackets.",
        "",
        *_table(("model", *ARMS), ([_name(subject), *(_cell(kept, subject, arm) for arm in ARMS)] for subject in both)),
    ]
    skipped = {row.subject: row.reason for row in kept if row.status not in ("done",)}
    if skipped:
        lines += ["", "## Not done", "", *(f"- {_name(subject)}: {_plain(reason)}" for subject, reason in sorted(skipped.items()))]
    return "\n".join(lines) + "\n"


def _versions(rows: Sequence[TaskRow]) -> str:
    used = sorted({(row.suite, row.torch or "?", row.library or "?") for row in rows})
    libraries: dict[str, dict[str, list[str]]] = {}
    for suite, torch, library in used:
        libraries.setdefault(suite, {}).setdefault(library, []).append(torch)
    return "; ".join(
        f"{suite} " + (" and ".join(f"{library} (torch {', '.join(torch)})" for library, torch in versions.items()))
        for suite, versions in libraries.items()
    )


def _totals(rows: Sequence[TaskRow]) -> Iterator[list[str]]:
    groups: dict[tuple[str, str], list[TaskRow]] = {}
    for row in sorted(rows, key=lambda row: (row.suite, row.arm)):
        groups.setdefault((row.suite, row.torch or "?"), []).append(row)
    for (suite, torch), listed in groups.items():
        counts = Counter(row.status for row in listed)
        yield [
            suite, torch, str(len(listed)), *(str(counts[status]) for status in WELL),
            str(sum(row.status not in WELL for row in listed)), str(sum(bool(row.break_sites) for row in listed)),
            str(sum(row.break_sites or 0 for row in listed)), str(sum(row.recompiles or 0 for row in listed)),
            f"{sum(row.cpu_s or 0 for row in listed) / len(listed):.0f}",
        ]  # fmt: skip


def _changes(changes: Sequence[RowChange]) -> list[str]:
    rows = [
        [_name(one.subject), one.what, one.finding.code if one.finding else one.kind, _plain(one.old or "-"), _plain(one.new or "-")]
        for one in sorted(changes, key=lambda one: (one.what != "worse", one.subject))
    ]
    return _table(("model", "", "code", "before", "after"), rows) if rows else ["Nothing."]


def _codes(rows: Sequence[TaskRow]) -> Iterator[list[str]]:
    subjects: dict[str, dict[str, set[str]]] = {}
    titles: dict[str, str] = {}
    for row in rows:
        for one in row.findings:
            subjects.setdefault(one.code, {}).setdefault(row.arm, set()).add(row.subject)
            titles.setdefault(one.code, f"{one.title} ({_name(row.subject)})")
    for code, arms in sorted(subjects.items(), key=lambda item: (-max(map(len, item[1].values())), item[0])):
        yield [f"`{code}`", *(str(len(arms.get(arm, ()))) for arm in ARMS), _plain(titles[code])]


def _cell(rows: Iterable[TaskRow], subject: str, arm: str) -> str:
    row = next(row for row in rows if (row.subject, row.arm) == (subject, arm))
    return f"{row.break_sites} / {row.recompiles} ({row.graphs})" if row.status == "done" else row.status


def _name(subject: str) -> str:
    return subject.replace(":", " ")


def _plain(text: str | None) -> str:
    """Words of a program as text of a table: no markup of theirs."""
    return re.sub(r"([\\`*_{}\[\]<>|#~])", r"\\\1", " ".join((text or "").split())[:160])


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}", *(f"| {' | '.join(row)} |" for row in rows)]


def main() -> None:
    """Keep the rows, write the page."""
    if len(sys.argv) > 1:
        given = read(Path(sys.argv[1]))
        (HERE / JOURNAL).unlink(missing_ok=True)
        for row in sorted(given, key=lambda row: (row.suite, row.subject, row.arm)):
            append(HERE, without_machine(row))
    PAGE.write_text(page(read(HERE)), "utf-8")


if __name__ == "__main__":
    main()
