"""What `report.md` and `report.html` say: what PyTorch's bug form asks for (.github/ISSUE_TEMPLATE/pt2-bug-report.yml: description, error
logs, versions).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dynadiag.masking import masked_setting, masked_text
from dynadiag.reduce.core.failure import Failure
from dynadiag.reduce.graphs.setting import INNER
from dynadiag.reduce.reproducer.ablation import SIZES, Cell
from dynadiag.render.document import Block, Column, Document, Headline, Part, Section, Tone, cells

_SOURCE_LIMIT = 30_000
_ERROR_LIMIT = 12_000
_OTHERS = 10


@dataclass(frozen=True, kw_only=True)
class BugReport:
    """All that the page says. `about` is the first sentence, `source` the reproducer, `story` how it came about, `notes` further
    sentences, `error` what the reproducer printed (None: what the failure itself says), `proof` how often it failed. `figures` are the
    few numbers of a page by name, `pictures` SVG with what each shows, `command` what was typed.
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
    proof: Headline | None = None
    figures: Sequence[tuple[str, str]] = ()
    pictures: Sequence[tuple[str, str]] = ()
    command: str = ""


def document_of(report: BugReport) -> Document:
    """The report, ready to be pasted into the form or to be shown as a page."""
    none = Headline(word="no reproducer", said=report.source_why or "nothing was written", tone="bad")
    proof = none if report.source is None else report.proof
    return Document(
        title=report.failure.title(),
        command=report.command,
        headlines=() if proof is None else (proof,),
        figures=tuple(report.figures),
        sections=tuple(_sections(report)),
        name="minify.json",
    )


def _sections(report: BugReport) -> Iterator[Section]:
    yield Section(title="Describe the bug", lines=(report.about, report.story, *report.notes))
    yield _reproducer(report)
    if report.cells:
        yield _ablation(report.cells)
    error = without_folders(report.error) if report.error else report.failure.detail or report.failure.title()
    yield Section(title="Error logs", block=Block(text=_tail(masked_text(error))))
    yield Section(title="Pictures", pictures=tuple(report.pictures))
    others = sorted((report.other_failures or {}).items())
    more = [f"and {len(others) - _OTHERS} more, in `minify.json`"] if len(others) > _OTHERS else []
    points = (*(f"{text} ({times} times)" for text, times in others[:_OTHERS]), *more)
    yield Section(title="Other failures seen along the way", points=points)
    facts = "\n".join(f"{name}: {masked_setting(name, value)}" for name, value in report.facts.items())
    yield Section(title="Versions", block=Block(text=facts))


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
        return f"Inductor's inner compiler `{name}`, called directly on this ATen graph (without `torch.compile`)"
    return f"`torch.compile` with the backend `{name}`"


_EACH_CELL = "Each cell is one run of the reduced graph in its own process; dynamic sizes are `torch.compile(dynamic=True)`."


def _ablation(found: Sequence[Cell]) -> Section:
    said = {(cell.backend, cell.sizes): cell.said for cell in found}
    rows = [
        cells(Part(backend, code=True), *(_result(said.get((backend, sizes), "not run")) for sizes in SIZES))
        for backend in dict.fromkeys(cell.backend for cell in found)
    ]
    columns = (Column("backend"), *(Column(f"{sizes} sizes") for sizes in SIZES))
    return Section(title="Which part of the compiler", columns=columns, items=rows, closing=_EACH_CELL, depth=3)


def _result(said: str) -> Part:
    tones: Mapping[str, Tone] = {"fails": "bad", "passes": "good"}
    return Part(said, tone=tones.get(said, "plain"))


def _reproducer(report: BugReport) -> Section:
    title, source = "Minimal reproducer", report.source
    if source is None:
        return Section(title=title, lines=(f"There is none: {report.source_why or 'nothing was written'}.",), depth=3)
    if len(source) > _SOURCE_LIMIT:
        return Section(title=title, lines=(f"`repro_min.py`, attached ({len(source):,} characters).",), depth=3)
    return Section(title=title, block=Block(text=source, language="python"), depth=3)


def without_folders(output: str) -> str:
    """What a fresh process printed, with the file alone in place of the folder that it ran in."""
    return re.sub(r'(?<=")[^"\n]*/(?=repro_min\.py")', "", output)


def _tail(text: str) -> str:
    """The end of a long log, where the error stands."""
    return text if len(text) <= _ERROR_LIMIT else "[...]\n" + text[-_ERROR_LIMIT:].split("\n", 1)[-1]
