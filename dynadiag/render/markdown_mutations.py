"""The mutations in Markdown: a folded table of those that cost something, and one line for the free ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from dynadiag.model.report import Mutation, Report
from dynadiag.render import mutation_words as words
from dynadiag.render.markdown_text import code, prose

Folded = Callable[..., Iterator[str]]
_HEADING = ("id", "code", "input", "kind", "lines", "effects", "torch says")


def mutation_table(report: Report, rows: int, folded: Folded) -> Iterator[str]:
    """The table; `folded` makes it of heading, items, the most rows and a function from an item to cells."""
    base = Path(report.run.info.cwd) if report.run.info.cwd else None
    costly = [one for one in report.mutations if not words.is_folded(one)]
    free = [one for one in report.mutations if words.is_folded(one)]
    yield from folded("Mutations", _HEADING, costly, rows, lambda one: _cells(one, base))
    if free:
        yield prose(f"{words.free_line(free)} (listed in report.json).")


def _cells(one: Mutation, base: Path | None) -> tuple[str, ...]:
    return (
        code(one.id),
        code(one.code),
        code(one.input, limit=120),
        prose(one.kind, limit=40),
        code(words.places(one, base)),
        prose(words.effects(one), limit=400),
        prose(one.refusal, limit=400) if one.refusal else "",
    )
