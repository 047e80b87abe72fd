"""`report.md`: what PyTorch's bug form asks for (.github/ISSUE_TEMPLATE/pt2-bug-report.yml: description, error logs, versions)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dynadiag.masking import masked_setting, masked_text
from dynadiag.reduce.core.failure import Failure
from dynadiag.reduce.graphs.setting import INNER
from dynadiag.reduce.reproducer.ablation import SIZES, Cell
from dynadiag.render.markdown_text import code, prose, table
from dynadiag.render.sanitise import clean_block

_SOURCE_LIMIT = 30_000
_ERROR_LIMIT = 12_000
_LINES = 2_000
_OTHERS = 10


@dataclass(frozen=True, kw_only=True)
class BugReport:
    """All that the page says. `about` is the first sentence, `source` the reproducer, `story` how it came about, `notes` further
    sentences, `error` what the reproducer printed (None: what the failure itself says).
    """

    failure: Failure
    about: str
    story: str
    source: str | None
    source_why: str | None
    cells: Sequence[Cell]
    facts: Mapping[str, str]
    notes: Sequence[str] = ()
    other_failures: Mapping[str, int] | None = None
    error: str | None = None


def render(report: BugReport) -> str:
    """The page as Markdown, ready to be pasted into the form."""
    failure = report.failure
    parts = [
        f"# {prose(failure.title())}",
        "## Describe the bug",
        report.about,
        prose(report.story, limit=1000),
        *(prose(note, limit=1000) for note in report.notes),
        *_ablation(report.cells),
        "### Minimal reproducer",
        _source(report),
        "## Error logs",
        _fence(_tail(masked_text(without_folders(report.error) if report.error else failure.detail or failure.title())), "text"),
        *_others(report.other_failures or {}),
        "## Versions",
        _fence("\n".join(f"{name}: {masked_setting(name, value)}" for name, value in report.facts.items()), "text"),
    ]
    return "\n\n".join(parts) + "\n"


def about_graph(failure: Failure, backend: str) -> str:
    """The first sentence of a reduced graph, which was run without the compiler too."""
    what = f"{failure.kind.replace('_', ' ')} {failure.when()}"
    return f"{_compiler(backend)}: {what}. Without the compiler the same program passes."


def about_script(failure: Failure, *, recorded: bool) -> str:
    """The first sentence of a reduced script. What a recording tells is nothing that an uncompiled run could show."""
    what = failure.kind.replace("_", " ")
    if recorded:
        return f"{what.capitalize()} of `torch.compile` in the program below, which otherwise runs to completion."
    fails = f"The program below fails when it is compiled ({what} {failure.when()})"
    return f'{fails}. Under `torch.compiler.set_stance("force_eager")` it passes.'


def _compiler(name: str) -> str:
    if name == INNER:
        return f"Inductor's inner compiler {code(name)}, called directly on this ATen graph (without `torch.compile`)"
    return f"`torch.compile` with the backend {code(name)}"


def _ablation(cells: Sequence[Cell]) -> list[str]:
    if not cells:
        return []
    said = {(cell.backend, cell.sizes): cell.said for cell in cells}
    backends = list(dict.fromkeys(cell.backend for cell in cells))
    rows = [[code(backend), *(prose(said.get((backend, sizes), "not run")) for sizes in SIZES)] for backend in backends]
    return ["### Which part of the compiler", table(["backend", *(f"{sizes} sizes" for sizes in SIZES)], rows), _EACH_CELL]


_EACH_CELL = "Each cell is one run of the reduced graph in its own process; dynamic sizes are `torch.compile(dynamic=True)`."


def _source(report: BugReport) -> str:
    if report.source is None:
        return prose(f"There is none: {report.source_why or 'nothing was written'}.", limit=1000)
    if len(report.source) > _SOURCE_LIMIT:
        return f"`repro_min.py`, attached ({len(report.source):,} characters)."
    return _fence(report.source, "python")


def _others(others: Mapping[str, int]) -> list[str]:
    if not others:
        return []
    lines = [f"* {prose(text)} ({times} times)" for text, times in sorted(others.items())[:_OTHERS]]
    more = [f"* and {len(others) - _OTHERS} more, in `minify.json`"] if len(others) > _OTHERS else []
    return ["## Other failures seen along the way", "\n".join([*lines, *more])]


def without_folders(output: str) -> str:
    """What a fresh process printed, with the file alone in place of the folder that it ran in."""
    return re.sub(r'(?<=")[^"\n]*/(?=repro_min\.py")', "", output)


def _tail(text: str) -> str:
    """The end of a long log, where the error stands."""
    return text if len(text) <= _ERROR_LIMIT else "[...]\n" + text[-_ERROR_LIMIT:].split("\n", 1)[-1]


def _fence(text: str, language: str) -> str:
    body = clean_block(text, limit=_SOURCE_LIMIT + 1000, lines=_LINES).strip("\n")
    fence = "`" * max(3, max((len(run) for run in re.findall("`+", body)), default=0) + 1)
    return f"{fence}{language}\n{body}\n{fence}"
