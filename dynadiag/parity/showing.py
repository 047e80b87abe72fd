"""A `ParityResult` as the document that terminal, Markdown and page show."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dynadiag.parity.result import LIMITS, ParityFinding, ParityResult
from dynadiag.passes.find_parity_replayed import plain_source, tensor_in_words
from dynadiag.render.document import Cell, Column, Document, Headline, Part, Section, Tone, cells
from dynadiag.render.parity_words import ways
from dynadiag.render.wording import frame_name

_WIDTH = 400
_MOST_NAMED = 12
_KINDS = {
    "second_call": "first and second call",
    "same_tensor": "same tensor passed twice",
    "overlap_later": "apart, then overlapping",
    "overlap_first": "overlapping, then apart",
    "apart_later": "sharing memory, then apart",
    "disk_cache": "warm on-disk cache",
}
_TONES: Mapping[str, Tone] = {"error": "bad", "warning": "unclear", "differs": "bad", "equal": "good"}
_FOUND = (Column("code"), Column("finding"), Column("line", label="--> "))


def document_of(result: ParityResult, command: str = "") -> Document:
    """What happened and what could, first in a line each, then with values and lines; what was tried, and what was not and why."""
    happened = result.happened
    lines = [Headline(word="Could happen", what=headline(result), tone=_tone(bool(result.findings), bool(result.compared)))]
    figures = [
        ("graphs replayed", f"{result.compared} of {len(result.graphs)}"),
        ("ways to go wrong or to differ", f"{len(result.findings)}"),
    ]
    if happened is not None:
        tone = _tone(bool(happened["findings"]), bool(happened["calls_compared"]))
        lines.insert(0, Headline(word="Happened", what=happened["verdict"], tone=tone))
        figures[:0] = [
            ("calls compared", f"{happened['calls_compared']}"),
            ("error that happened" if len(happened["findings"]) == 1 else "errors that happened", f"{len(happened['findings'])}"),
        ]
    return Document(
        title=f"dynadiag parity {result.recording}",
        facts=(
            f"replayed with torch {result.torch or 'of an unknown version'}, recorded with {', '.join(result.recorded_torch) or 'one'}",
        ),
        command=command,
        headlines=tuple(lines),
        figures=tuple(figures),
        sections=tuple(_sections(result)),
        name="parity.json",
    )


def headline(result: ParityResult) -> str:
    """How many graphs were compared and what that gave, in one line."""
    if not result.compared:
        return "the graph could not be compared" if len(result.graphs) == 1 else f"none of {len(result.graphs)} graphs could be compared"
    graphs = f"{result.compared} of {len(result.graphs)} graphs compared"
    return f"{graphs}, {ways([(finding.code, finding.tensor['aspect']) for finding in result.findings]) or 'no difference'}"


def _tone(differs: bool, compared: bool) -> Tone:
    return "bad" if differs else "good" if compared else "unclear"


def _sections(result: ParityResult) -> Iterator[Section]:
    if result.happened is not None and result.happened["findings"]:
        yield Section(
            title="What happened", columns=(*_FOUND, Column("why")), items=result.happened["findings"], row=_happened, as_entries=True
        )
    if result.findings:
        labels = (("other inputs", "also "), ("difference", "differs "), ("layer", "layer "), ("test", "test "))
        found = (*_FOUND, Column("when"), *(Column(name, label=label) for name, label in labels))
        yield Section(title="What could happen", columns=found, items=result.findings, row=_could, as_entries=True)
    tried = [(graph, item) for graph in result.graphs if graph["status"] != "skipped" for item in graph["tried"]]
    if tried:
        columns = tuple(map(Column, ("graph", "function", "back end", "calls", "inputs", "outcome", "not compared")))
        yield Section(title="Tried", columns=columns, items=tried, row=lambda element: _tried(*element))
    if differences := [(graph, entry) for graph in result.graphs for entry in graph["differences"]]:
        columns = tuple(map(Column, ("graph and layer", "calls", "tensor", "eager", "compiled", "line")))
        yield Section(title="Differences", columns=columns, items=differences, row=lambda one: _difference(*one), brief=False)
    if left := [*_not_tried(result)]:
        columns = tuple(map(Column, ("graph", "function", "calls", "reason")))
        yield Section(title="Not compared", columns=columns, items=left)
    notes = (f"{graph['graph']}: {note}" for graph in result.graphs for note in graph["notes"])
    while_recorded = () if result.happened is None else result.happened["notes"]
    yield Section(title="Notes", points=tuple(dict.fromkeys((*notes, *result.notes, *while_recorded, LIMITS))))


def _happened(found: Mapping[str, Any]) -> tuple[Cell, ...]:
    return *_head(found["code"], found["severity"], found["title"], found["where"]), (Part(found["why"], _WIDTH),)


def _could(parity_finding: ParityFinding) -> tuple[Cell, ...]:
    also = ", ".join(" and ".join(map(plain_source, pair)) for pair in parity_finding.also)
    differs = tensor_in_words(parity_finding.tensor) + (f"; {parity_finding.others} more" if parity_finding.others else "")
    head = _head(parity_finding.code, parity_finding.severity, f"{parity_finding.title} ({parity_finding.graph})", parity_finding.where)
    return *head, *cells(
        *(Part(text or "", _WIDTH) for text in (parity_finding.would, also, differs, parity_finding.layer, parity_finding.test))
    )


def _head(code: str, severity: str, title: str, where: Mapping[str, Any] | None) -> tuple[Cell, ...]:
    tone = _TONES.get(severity, "plain")
    return (Part(code, code=True),), (Part(severity, tone=tone), Part(title, before=": ")), _cell_of_line(where)


def _cell_of_line(where: Mapping[str, Any] | None) -> Cell:
    if where is None:
        return ()
    return Part(f"{where['file']}:{where['line']} in {where['function']}"), Part(where["code"] or "", _WIDTH, code=True, before=": ")


def _tried(graph: Mapping[str, Any], tried: Mapping[str, Any]) -> tuple[Cell, ...]:
    outcome = {"equal": "equal", "differs": "DIFFERS", "not_judged": f"no verdict: {tried['why_not']}"}[tried["outcome"]]
    left = [] if tried["values_compared"] or tried["outcome"] == "not_judged" else ["values (random or undefined)"]
    left += [f"gradients: {tried['gradients_why_not']}"] if tried["gradients_why_not"] else []
    return cells(
        graph["graph"],
        Part(_function(graph), code=True),
        graph["backend"],
        _KINDS[tried["kind"]],
        " and ".join(map(plain_source, tried["pair"])),
        Part(outcome, tone=_TONES.get(tried["outcome"], "unclear")),
        "; ".join(left),
    )


def _difference(graph: Mapping[str, Any], mapping: Mapping[str, Any]) -> tuple[Cell, ...]:
    tried = graph["tried"][mapping["scenario"]]
    name = plain_source(mapping["source"]) if mapping["source"] else mapping["name"]
    some = f" ({mapping['wrong_elements']} of {mapping['elements']} elements)" if mapping["elements"] else ""
    what = some if mapping["aspect"] == "values" else f" ({mapping['aspect'].replace('_', ' ')})"
    calls = f"{_KINDS[tried['kind']]}, call {mapping['call'] + 1}"
    tensor = f"{mapping['where']} {name}{what}" if mapping["where"] in ("input", "gradient") else f"{name}{what}"
    return *cells(f"{graph['graph']}, {mapping['layer']}", calls, tensor, mapping["eager"], mapping["compiled"]), _cell_of_line(
        mapping["line"]
    )


def _not_tried(result: ParityResult) -> Iterator[tuple[Cell, ...]]:
    """What was not compared: each reason once, with the graphs and the scenarios that it holds for."""
    grouped: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for graph in result.graphs:
        by_reason: dict[str, list[str]] = {graph["why_not"]: ["all"]} if graph["status"] == "skipped" else {}
        for item in graph["skipped"]:
            by_reason.setdefault(item["reason"], []).append(_KINDS[item["kind"]])
        for reason, held in by_reason.items():
            grouped.setdefault((" and ".join(held), reason), []).append(graph)
    for (calls, reason), graphs in grouped.items():
        names = dict.fromkeys(_function(mapping) for mapping in graphs)
        yield cells(_some([element["graph"] for element in graphs]), Part(_some([*names]), _WIDTH, code=True), calls, Part(reason, _WIDTH))


def _some(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _function(graph: Mapping[str, Any]) -> str:
    return frame_name(graph["function"]) if graph["function"] else "unknown function"
