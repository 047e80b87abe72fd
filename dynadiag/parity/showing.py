"""A `ParityResult` as text for a terminal and as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dynadiag.parity.result import LIMITS, ParityFinding, ParityResult
from dynadiag.passes.find_parity_replayed import plain_source, tensor_in_words
from dynadiag.render.markdown_text import prose
from dynadiag.render.sanitise import clean

_WIDTH = 400
_KINDS = {
    "second_call": "first and second call",
    "same_tensor": "same tensor passed twice",
    "overlap_later": "apart, then overlapping",
    "overlap_first": "overlapping, then apart",
    "apart_later": "sharing memory, then apart",
    "disk_cache": "warm on-disk cache",
}


def as_text(result: ParityResult) -> str:
    """The findings, then what was tried and what not, for each graph."""
    return "".join(f"{' ' * (len(line) - len(line.lstrip(' ')))}{clean(line, limit=_WIDTH)}\n" for line in _text(result))


def verdict(result: ParityResult) -> str:
    """What happened, if that was compared, and what could happen, a line each."""
    return "".join(f"{line}\n" for line in as_text(result).splitlines() if line.startswith(("Happened: ", "Could happen: ")))


def _text(result: ParityResult) -> Iterator[str]:
    if result.happened is not None:
        yield f"Happened: {result.happened['verdict']}"
        for found in result.happened["findings"]:
            yield from _happened(found)
        yield ""
    yield f"Could happen: {headline(result)}"
    for finding in result.findings:
        yield ""
        yield f"{finding.severity} {finding.code}  {finding.title} ({finding.graph})"
        yield from (f"    {line}" for line in _about(finding))
    yield ""
    yield "Tried"
    for graph in result.graphs:
        yield from (f"  {line}" for line in _graph(graph))
    yield ""
    yield from (f"note: {note}" for note in result.notes)
    yield f"note: {LIMITS}"


def _happened(found: Mapping[str, Any]) -> Iterator[str]:
    where = found["where"]
    yield ""
    yield f"{found['severity']} {found['code']}  {found['title']}"
    if where is not None:
        yield f"    --> {where['file']}:{where['line']} in {where['function']}: {where['code']}"
    yield f"    {found['why']}"


def headline(result: ParityResult) -> str:
    """How many graphs were compared and what that gave, in one line."""
    if not result.compared:
        return f"none of {len(result.graphs)} graphs could be compared"
    graphs = f"{result.compared} of {len(result.graphs)} graphs compared"
    found = len(result.findings)
    return f"{graphs}, {found} {'way' if found == 1 else 'ways'} to go wrong" if found else f"{graphs}, no difference"


def _about(finding: ParityFinding) -> Iterator[str]:
    where = finding.where
    if where is not None:
        yield f"--> {where['file']}:{where['line']} in {where['function']}: {where['code']}"
    yield finding.would
    if finding.also:
        yield f"also      {', '.join(' and '.join(map(plain_source, pair)) for pair in finding.also)}"
    more = f"; {finding.others} more" if finding.others else ""
    yield f"differs   {tensor_in_words(finding.tensor)}{more}"
    yield f"layer     {finding.layer}"
    if finding.test:
        yield f"test      {finding.test}"


def _graph(graph: Mapping[str, Any]) -> Iterator[str]:
    name = f"{graph['graph']} {graph['function'] or 'unknown function'}"
    if graph["status"] == "skipped":
        yield f"{name}: not compared: {graph['why_not']}"
        return
    yield f"{name} [{graph['backend']}]"
    for tried in graph["tried"]:
        yield f"  {tried_in_words(tried)}"
    if graph["skipped"]:
        yield f"  not tried: {'; '.join(_not_tried(graph['skipped']))}"
    yield from (f"  note: {note}" for note in graph["notes"])


def _not_tried(skipped: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Each reason once, with the scenarios that it holds for."""
    by_reason: dict[str, list[str]] = {}
    for one in skipped:
        by_reason.setdefault(one["reason"], []).append(_KINDS[one["kind"]])
    return (f"{' and '.join(kinds)} ({reason})" for reason, kinds in by_reason.items())


def tried_in_words(tried: Mapping[str, Any]) -> str:
    """One scenario and its outcome."""
    pair = f" {' and '.join(map(plain_source, tried['pair']))}" if tried["pair"] else ""
    outcome = {"equal": "equal", "differs": "DIFFERS", "not_judged": f"no verdict: {tried['why_not']}"}[tried["outcome"]]
    random = "" if tried["values_compared"] or tried["outcome"] == "not_judged" else " (values not compared: random or undefined)"
    gradients = f" (without gradients: {tried['gradients_why_not']})" if tried["gradients_why_not"] else ""
    return f"{_KINDS[tried['kind']]}{pair}: {outcome}{random}{gradients}"


def as_markdown(result: ParityResult) -> str:
    """The same as Markdown."""
    lines = [] if result.happened is None else ["## Happened", "", prose(result.happened["verdict"], limit=_WIDTH), ""]
    for found in result.happened["findings"] if result.happened is not None else ():
        _, head, *rest = _happened(found)
        lines += [f"- {prose(head, limit=_WIDTH)}", *(f"  - {prose(line.strip(), limit=_WIDTH)}" for line in rest), ""]
    lines += ["## Could happen", "", prose(headline(result), limit=_WIDTH), ""]
    for finding in result.findings:
        lines.append(f"- **{finding.code}** {prose(finding.title)} ({finding.graph})")
        lines += [f"  - {prose(line, limit=_WIDTH)}" for line in _about(finding)]
    lines += ["", "### Tried", ""]
    for graph in result.graphs:
        first, *rest = _graph(graph)
        lines.append(f"- {prose(first, limit=_WIDTH)}")
        lines += [f"  - {prose(line.strip(), limit=_WIDTH)}" for line in rest]
    lines += ["", *(f"- {prose(note, limit=_WIDTH)}" for note in (*result.notes, LIMITS)), ""]
    return "\n".join(lines)
