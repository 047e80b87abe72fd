"""PyTorch's bug form (`.github/ISSUE_TEMPLATE/pt2-bug-report.yml`) for what a run, `minify` or `bench` found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from dynadiag.model.graph import Graph
from dynadiag.model.report import Finding, Report
from dynadiag.render import markdown_text, wording
from dynadiag.render.document import Block, Column, Document, Section, cells
from dynadiag.share.repository import Repository

LIMIT = 65_536
"""Characters of an issue's text that GitHub takes."""
_FINDINGS, _FUNCTIONS, _PROBLEMS = 5, 6, 3
_SIZES = ((14_000, 12_000), (6_000, 5_000), (2_000, 2_000), (500, 500))
_ERRORS = ("error", "backend_error", "backward_error", "suppressed_error", "uncaught", "aot_rejected")


@dataclass(frozen=True, kw_only=True)
class Removed:
    """What was taken out: rows of kind, place and count, never a value; or that nothing was asked to be."""

    rows: Sequence[tuple[str, str, int]] = ()
    left_out: Mapping[str, int] | None = None
    redacted: bool = True


def of_run(report: Report, repository: Repository, removed: Removed, *, source: int, error: int) -> Document:
    """The form of a run; `source` and `error` are the characters of the two long texts at most."""
    finding = next((item for item in report.findings if item.severity != "note"), None) or next(iter(report.findings), None)
    return Document(
        title=f"[{finding.code}] {finding.title}" if finding else "torch.compile: nothing found",
        sections=(
            Section(title="Describe the bug", lines=tuple(_about(report))),
            Section(title="What was found, most expensive first", points=tuple(_points(report)), depth=3),
            _layers(report),
            _reproducer(report, source),
            Section(title="Error logs", block=Block(text=_errors(report, finding, error))),
            Section(title="Versions", block=Block(text="\n".join(_versions(report)))),
            *_closing(repository, removed),
        ),
        name="report.json",
    )


def of_document(told: Document, repository: Repository, removed: Removed, *, source: int, error: int) -> Document:
    """The form that `minify` or `bench` filled in, with long texts cut and what a bundle adds."""
    sections = [
        replace(section, block=_cut(section.block, source if section.block.language == "python" else error)) if section.block else section
        for section in told.sections
    ]
    return replace(told, sections=(*sections, *_closing(repository, removed)))


def fitting(make: Callable[[int, int], Document]) -> str:
    """The Markdown of a form that is made for so many characters of source and of error: as much as GitHub takes."""
    text = ""
    for source, error in _SIZES:
        text = markdown_text.document(make(source, error))
        if len(text) <= LIMIT:
            return text
    return text[: LIMIT - 40].rpartition("\n")[0] + "\n\nThe rest did not fit.\n"


def _about(report: Report) -> Iterator[str]:
    summary = report.summary
    graphs = wording.plural(summary.graphs, "graph")
    yield f"`{wording.command(report)}` was recorded with dynadiag. `torch.compile` captured {graphs} of it."
    counts = (
        wording.plural(summary.graph_break_sites, "graph break site") + f" ({wording.plural(summary.graph_break_events, 'event')})",
        wording.plural(summary.recompiles, "recompile"),
        wording.plural(summary.fallbacks, "fallback") + " to eager",
    )
    yield f"Found: {', '.join(counts)}."


def _points(report: Report) -> Iterator[str]:
    base = wording.base_folder(report.run)
    for finding in report.findings[:_FINDINGS]:
        where = f" at {wording.place(finding.where, base)}" if finding.where is not None else ""
        yield f"{finding.severity} {finding.code}: {finding.title}{where}. {finding.why}"
    if (more := len(report.findings) - _FINDINGS) > 0:
        yield f"and {more:,} more, in `report.json`"


def _layers(report: Report) -> Section:
    """What each layer of the compiler did, as far as it was recorded."""
    graphs: Counter[str] = Counter(_layer(graph) for graph in report.run.graphs)
    failed = Counter(problem.kind for problem in report.run.problems)
    breaks = report.summary.graph_break_sites
    total = report.summary
    frames = f"{wording.plural(total.frames, 'frame')}, {total.frames_compiled:,} compiled, {total.frames_skipped:,} skipped"
    dynamo = f"{frames}; {wording.plural(graphs['dynamo'], 'graph')} captured"
    rows = [
        cells(
            "Dynamo",
            dynamo,
            f"{wording.plural(breaks, 'graph break site')}, {wording.plural(failed['error'] + failed['suppressed_error'], 'error')}",
        ),
        cells("AOTAutograd", wording.plural(graphs["aot"], "graph"), wording.plural(failed["aot_rejected"], "rejected graph")),
        cells(
            "back end",
            ", ".join(_backends(report)) or "not known",
            wording.plural(failed["backend_error"] + failed["backward_error"], "error"),
        ),
    ]
    columns = (Column("layer"), Column("what it did"), Column("what went wrong"))
    return Section(title="Which part of the compiler", columns=columns, items=rows, depth=3)


def _layer(graph: Graph) -> str:
    return "dynamo" if graph.kind == "dynamo" else "aot" if graph.kind.startswith("aot") else "post_grad"


def _backends(report: Report) -> list[str]:
    return list(dict.fromkeys(compile_call.backend or "inductor" for compile_call in report.run.compile_calls))[:_FUNCTIONS]


def _reproducer(report: Report, limit: int) -> Section:
    """The functions that the findings are about, as they were recorded; nothing here was run."""
    title = "Minimal reproducer"
    if not report.run.functions:
        return Section(title=title, lines=("There is none, and the recording has no source. `dynadiag minify SCRIPT` makes one.",), depth=3)
    named = [f"# {function.name}, line {function.line}\n{function.text}" for function in report.run.functions[:_FUNCTIONS]]
    said = "There is none yet: `dynadiag minify SCRIPT` makes one. These are the functions that the findings are about, as recorded."
    return Section(title=title, lines=(said,), block=_cut(Block(text="\n\n".join(named), language="python"), limit), depth=3)


def _errors(report: Report, finding: Finding | None, limit: int) -> str:
    """The errors that torch raised, else what it said of the graph break."""
    texts = [problem.text for problem in report.run.problems if problem.kind in _ERRORS][:_PROBLEMS]
    if not texts and finding is not None:
        for site in (graph_break for graph_break in report.graph_breaks if graph_break.id in finding.evidence):
            stack = [f"  {place.file}:{place.line} in {place.function}\n    {place.code or ''}" for place in site.stack]
            texts.append("\n".join(filter(None, (f"{site.gb_id or ''} {site.reason}".strip(), site.explanation, *site.hints, *stack))))
    return _tail("\n\n".join(texts[:_PROBLEMS]) or "torch raised no error", limit)


def _versions(report: Report) -> Iterator[str]:
    """What collect_env asks, as it was when the program ran."""
    told = next((process for process in report.run.processes if process.machine), None)
    yield from (f"{name}: {value}" for name, value in (told.machine if told is not None else {}).items())
    facts = wording.environment(report.run.processes)
    if told is None:
        yield from (f"PyTorch version: {facts.torch or 'not recorded'}", f"Python version: {facts.python or 'not recorded'}")
        yield "The rest was not recorded: `python -m torch.utils.collect_env` on that machine tells it."
    yield f"GPU: {facts.device or 'not known'}"
    yield f"Processes: {facts.processes}, ranks: {len(facts.ranks)}"
    for name, value in (told.environment if told is not None else {}).items():
        yield f"{name}={value}"


def _closing(repository: Repository, removed: Removed) -> Iterator[Section]:
    label = f" Label of PyTorch's triage for such issues: `{repository.label}`." if repository.label else ""
    yield Section(title="Where to file this", lines=(f"{repository.said}.{label}",))
    if not removed.redacted:
        yield Section(
            title="Not redacted",
            lines=("Made with `--no-redact`: secrets, names of people and machines, and all recorded source are in it.",),
        )
        return
    times: Counter[str] = Counter()
    for kind, _, count in removed.rows:
        times[kind] += count
    rows = [
        cells(kind, f"{count:,}", ", ".join(sorted({where for name, where, _ in removed.rows if name == kind})))
        for kind, count in sorted(times.items())
    ]
    left = tuple(f"Left out: {what}, {times_words(count)}." for what, count in sorted((removed.left_out or {}).items()))
    columns = (Column("removed"), Column("times", numeric=True), Column("where"))
    none = () if rows else ("Nothing that looks like a secret, a person or a machine was found.",)
    yield Section(title="Redacted", lines=(*none, *left), columns=columns, items=rows, unit="kind")


def times_words(count: int) -> str:
    """How often something happened."""
    return "once" if count == 1 else f"{count:,} times"


def _cut(block: Block, limit: int) -> Block:
    return (
        block
        if len(block.text) <= limit
        else replace(block, text=block.text[:limit].rpartition("\n")[0] + "\n# ... the rest is in the bundle")
    )


def _tail(text: str, limit: int) -> str:
    return text if len(text) <= limit else "[...]\n" + text[-limit:].split("\n", 1)[-1]
