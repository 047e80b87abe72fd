"""A `FixResult` as the document that terminal and Markdown show: what is proven, what is left and why, the counts before and after."""

from __future__ import annotations

from collections.abc import Iterator

from dynadiag.facts.wording import short_place
from dynadiag.fix.result import Changed, FixResult
from dynadiag.fix.speed import Version
from dynadiag.model.report import Finding, Summary
from dynadiag.render.document import Block, Cell, Column, Document, Headline, Part, Section, Tone
from dynadiag.render.wording import plural

_COUNTED = {
    "graph breaks": "graph_break_sites",
    "events": "graph_break_events",
    "recompiles": "recompiles",
    "fallbacks": "fallbacks",
    "graphs": "graphs",
}
_LEFT = (Column("code"), Column("place"), Column("why"))


def document_of(result: FixResult) -> Document:
    """All that was found out; the patch is only in what is not brief."""
    tone: Tone = "good" if result.findings and not result.left else "unclear"
    return Document(
        title=f"dynadiag fix {' '.join(result.command)}",
        headlines=(Headline(word=headline(result), tone=tone),),
        sections=tuple(_sections(result)),
        name="fix.json",
    )


def headline(result: FixResult) -> str:
    """What came of it in one line."""
    if not result.findings:
        return "nothing to fix: there are no warnings"
    if result.not_proven is not None:
        return f"nothing is proven: {result.not_proven}"
    found = f"{result.cured} of {plural(len(result.findings), 'finding')} cured and proven"
    if not result.kept:
        return f"{found}: no change is proven"
    return f"{found}, {plural(len(result.kept), 'change')}" + ("" if result.after is None else _still_there(result.after))


def _still_there(after: Summary) -> str:
    """What the program still does with the patch, whether a finding is made of it or not."""
    counts = {"graph break": after.graph_break_events, "recompile": after.recompiles, "fallback": after.fallbacks}
    words = [plural(count, name) for name, count in counts.items() if count]
    return f"; still there: {', '.join(words)}" if words else ""


def _sections(result: FixResult) -> Iterator[Section]:
    for number, change in enumerate(result.kept, start=1):
        code = "\n".join([*(f"- {row}" for row in change.before), *(f"+ {row}" for row in change.after)])
        lines = tuple(_about(change, result))
        yield Section(title=f"change {number} {change.slug}", said=change.text, lines=lines, block=Block(text=code, language="diff"))

    def left(finding: Finding) -> tuple[Cell, ...]:
        place = "unknown place" if finding.where is None else short_place(finding.where)
        return (Part(finding.code),), (Part(place),), (Part(result.left[finding.fingerprint]),)

    others = [item for item in result.findings if item.fingerprint in result.left]
    yield Section(title="Left", columns=_LEFT, items=others, row=left, unit="finding", as_entries=True)
    pairs = () if result.after is None else (before_and_after(result.before, result.after), _speed(result))
    yield Section(title="Before and after" if pairs else "Cost", points=(*pairs, _cost(result)))
    if result.patch:
        yield Section(title="Patch", block=Block(text=result.patch, language="diff"), brief=False)


def _about(change: Changed, result: FixResult) -> Iterator[str]:
    names = {finding.fingerprint: finding for finding in result.findings}
    found = [names[cure] for cure in change.cures if cure in names]
    yield from (f"cures {item.code} at {'unknown place' if item.where is None else short_place(item.where)}" for item in found)
    if not found:  # a site in a library, which has a name of its own
        yield f"changes {change.places[0]}"
    yield f"proven: {plural(change.calls, 'call')} compared with the original in eager: {', '.join(change.runs)}"
    if change.gives_up is not None:
        yield f"gives up: {change.gives_up}"


def before_and_after(before: Summary, after: Summary) -> str:
    """The counts of two runs in one line."""
    pairs = {name: (getattr(before, name), getattr(after, name)) for name in _COUNTED.values()}
    shown = {words: "{} -> {}".format(*pairs[name]) for words, name in _COUNTED.items()}
    events = shown.pop("events")
    return ", ".join(f"{words} {text}" + (f" (events {events})" if words == "graph breaks" else "") for words, text in shown.items())


def _speed(result: FixResult) -> str:
    speed = result.speed
    if speed is None:
        return f"speed was not measured: {result.no_speed}"
    times = [_time(version) for version in (speed.before, speed.after) if version is not None]
    compiled = [item.compile_cold_s for item in (speed.before, speed.after) if item is not None and item.compile_cold_s is not None]
    said = [f"speed: {speed.words}"]
    said += [f"{' -> '.join(times)} for {speed.unit}"] if len(times) == 2 and all(times) else []
    said += [f"compiling from cold caches {compiled[0]:.1f} s -> {compiled[1]:.1f} s"] if len(compiled) == 2 else []
    return "; ".join(said)


def _time(version: Version) -> str:
    if version.median_ms is None or version.ci95_ms is None:
        return ""
    return f"{version.median_ms:.3f} ms [{version.ci95_ms[0]:.3f}, {version.ci95_ms[1]:.3f}]"


def _cost(result: FixResult) -> str:
    times = f", {result.cpu_s / result.script_cpu_s:.1f} times the script's own" if result.script_cpu_s else ""
    return f"{plural(result.runs, 'run')} of the script to prove it, {result.cpu_s:.0f} CPU seconds{times}" + (
        f"; {result.bench_cpu_s:.0f} CPU seconds to time it" if result.bench_cpu_s else ""
    )
