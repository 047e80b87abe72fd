"""The comparison of two starts as the document that terminal, Markdown and page show, and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Literal, TypedDict

import dynadiag
from dynadiag.diff.result import Side, SourceLine
from dynadiag.facts.wording import plural
from dynadiag.render import finite_json
from dynadiag.render.document import Block, Cell, Column, Document, Headline, Part, Section, cells
from dynadiag.render.sanitise import json_escaped
from dynadiag.start.result import CacheAnswer, Cause, Compilation, Cured, OneBlock, StartResult

_WIDTH = 400
_MOST_SHOWN = 12
_WAYS = {"miss": "found no entry", "bypass": "bypassed the caches", "off": "used no cache"}
_CACHES = {"aotautograd": "AOTAutograd", "fx_graph": "Inductor"}


class StartKeys(TypedDict):
    """What `dynadiag start` found: this before all of `StartResult`."""

    schema_version: Literal[1]
    dynadiag: str
    cold: bool
    exit_status: int


def document_of(result: StartResult, command: str = "") -> Document:
    """All that was compared."""
    return Document(
        title="dynadiag start",
        facts=(_side("first", result.old), _side("second", result.new)),
        command=command,
        headlines=(headline(result), *(Headline(word="note", said=note, tone="unclear") for note in result.notes)),
        figures=(
            ("not warm", f"{result.missed} of {len(result.compilations)}"),
            ("compile time, first start", _seconds(result.first_s)),
            ("compile time, second start", _seconds(result.second_s)),
        ),
        sections=tuple(_sections(result)),
        name="start.json",
    )


def headline(result: StartResult) -> Headline:
    """Whether the second start was warm; a run that is not complete is not judged."""
    cut = [f"the {name} start is not complete" for name, side in (("first", result.old), ("second", result.new)) if side.cut_short]
    if cut:
        return Headline(word="Not judged", what=" and ".join(cut), tone="unclear")
    times = f"compiling took {_seconds(result.first_s)} in the first start and {_seconds(result.second_s)} in the second"
    failed = f"; the program {result.new.failed}" if result.new.failed is not None else ""
    if result.missed:
        return Headline(word="Cold", what=_not_warm(result), said=times + failed, tone="bad")
    what = f"{plural(len(result.compilations), 'compilation')}, all from the caches"
    if result.late:
        late = f"{plural(len(result.late), 'compilation')} after the first {plural(result.warm_up or 0, 'call')}"
        return Headline(word="Compiled after the warm-up", what=late, said=times + failed, tone="bad")
    return Headline(word="Failed" if failed else "Warm", what=what, said=times + failed, tone="bad" if failed else "good")


def _not_warm(result: StartResult) -> str:
    """How many compilations did not come from the caches, and in which way."""
    of = f"{result.missed} of {plural(len(result.compilations), 'compilation')}"
    ways = Counter(compilation.worst for compilation in result.compilations if compilation.cold)
    if len(ways) == 1:
        return f"{of} {_WAYS[next(iter(ways))]} in the second start"
    parts = ", ".join(f"{ways[way]} {words}" for way, words in _WAYS.items() if way in ways)
    return f"{of} did not come from the caches in the second start: {parts}"


def _side(name: str, side: Side) -> str:
    return f"{name}: {side.path}, torch {side.torch or 'unknown'}" + (f", {side.program}" if side.program else "")


def _sections(result: StartResult) -> Iterator[Section]:
    if causes := result.causes():
        yield Section(
            title="Causes",
            said=plural(len(causes), "cause"),
            columns=(
                Column("", fold=False),
                Column("what differs"),
                Column("line", label="at  "),
                Column("concerns", label="concerns  "),
                Column("change", label="change  "),
            ),
            items=causes[:_MOST_SHOWN],
            row=_cause,
            as_entries=True,
            closing="" if len(causes) <= _MOST_SHOWN else f"{len(causes) - _MOST_SHOWN} more: --format json",
        )
    if late := result.late:
        yield Section(
            title="Compiled after the warm-up",
            said=f"{plural(len(late), 'compilation')} after call {result.warm_up}",
            columns=(Column("function"), Column("call", numeric=True), Column("took", numeric=True), Column("torch's reason")),
            items=late[:_MOST_SHOWN],
            row=lambda item: cells(_function(item), str(item.call), _seconds(item.compile_s), Part(item.why_late or "", _WIDTH)),
            closing="" if len(late) <= _MOST_SHOWN else f"{len(late) - _MOST_SHOWN} more: --format json",
        )
    if result.cured is not None:
        yield from _cured(result, result.cured)
    if result.one_block is not None:
        yield _one_block(result, result.one_block)
    ordered = sorted(result.compilations, key=lambda item: (not item.cold, -(item.compile_s or 0.0)))
    warm = sum(not item.cold for item in ordered)
    yield Section(
        title="Compilations of the second start",
        said=f"{len(ordered) - warm} not warm, {warm} warm",
        columns=(Column("function"), Column("caches"), Column("first", numeric=True), Column("second", numeric=True)),
        items=ordered[:_MOST_SHOWN],
        row=lambda item: cells(_function(item), _answers(item.answers), _seconds(item.first_s), _seconds(item.compile_s)),
        closing="" if len(ordered) <= _MOST_SHOWN else f"{len(ordered) - _MOST_SHOWN} more: --format json",
    )
    if result.steps:
        rows = [cells(name, *map(_step_seconds, pair)) for name, pair in result.steps.items()]
        yield Section(
            title="Steps of the start",
            said="seconds, each measured once",
            columns=(Column("step"), Column("first", numeric=True), Column("second", numeric=True)),
            items=rows,
        )


def _cured(result: StartResult, cured: Cured) -> Iterator[Section]:
    """What was tried, and what the second start with it came to."""
    if cured.missed is None:
        yield Section(title="With changes", said=f"nothing is proven: {cured.why_not}")
        return
    late = f", {len(result.late)} -> {cured.late} compiled after the warm-up" if result.warm_up is not None else ""
    times = f"compile time of the second start {_seconds(result.second_s)} -> {_seconds(cured.second_s)}"
    yield Section(
        title="With all changes",
        said=f"{result.missed} -> {cured.missed} not warm{late}, {times}" + ("" if cured.why_not is None else f"; {cured.why_not}"),
        points=[f"{'cured' if change.cured else 'not cured'}: {change.said}" for change in cured.changes],
        block=Block(text="\n".join(line for change in cured.changes for line in change.lines), language="diff"),
        closing=""
        if cured.patch is None
        else f"{cured.patch} has the changes of the program; results were not compared: dynadiag prove --patch {cured.patch} does it",
    )


def _one_block(result: StartResult, tried: OneBlock) -> Section:
    """What compiling one block for all layers takes."""
    times = [
        f"compile time of the {which} start {_seconds(was)} -> {_seconds(now)}"
        for which, was, now in (("first", result.first_s, tried.first_s), ("second", result.second_s, tried.second_s))
    ]
    layers = f"{tried.count} equal {tried.block} in {tried.holder}"
    return Section(
        title="With one block compiled for all layers",
        said=f"{layers}: {', '.join(times)}" if tried.why_not is None else f"{layers}: nothing is compared: {tried.why_not}",
        lines=()
        if tried.compilations is None
        else (f"{plural(tried.compilations, 'compilation')}; what stands around the blocks runs eagerly",),
        block=Block(text="\n".join(tried.lines), language="diff"),
        closing=""
        if tried.patch is None
        else f"{tried.patch} has the change; results and steady speed were not compared: dynadiag prove --patch {tried.patch}",
    )


def _cause(entry: tuple[Cause, list[Compilation]]) -> tuple[Cell, ...]:
    cause, concerned = entry
    took = [item.compile_s for item in concerned if item.compile_s is not None]
    names = list(dict.fromkeys(_function(item) for item in concerned))
    more = f" and {len(names) - 2} more" if len(names) > 2 else ""
    spent = f", {_seconds(sum(took))} of compiling" if took else ""
    concerns = f"{', '.join(names[:2])}{more}: {plural(len(concerned), 'compilation')}{spent}"
    return (
        (Part(cause.kind.replace("_", " "), tone="bad"),),
        (Part(cause.said, _WIDTH),),
        _line(cause.place),
        (Part(concerns),),
        (Part(cause.cure, _WIDTH),) if cause.cure else (),
    )


def _line(place: SourceLine | None) -> Cell:
    if place is None:
        return ()
    at = Part(place.file if place.line is None else f"{place.file}:{place.line}")
    return (at, Part(place.source, code=True, before=": ")) if place.source else (at,)


def _function(item: Compilation) -> str:
    at = "" if item.place is None else f" ({item.place.file}:{item.place.line})"
    return f"{item.function}{at}"


def _answers(answers: Sequence[CacheAnswer]) -> str:
    return ", ".join(f"{_CACHES.get(answer.cache, answer.cache)} {answer.result}" for answer in answers)


def _seconds(value: float | None) -> str:
    return "not recorded" if value is None else f"{value:.2f} s"


def _step_seconds(value: float | None) -> str:
    """Whole seconds where the clock showed no more."""
    return "-" if value is None else f"{value:.0f} s" if value.is_integer() else f"{value:.2f} s"


def as_json(result: StartResult) -> str:
    """All of it (`docs/start.schema.json`)."""
    head: StartKeys = {
        "schema_version": 1,
        "dynadiag": dynadiag.__version__,
        "cold": result.missed > 0,
        "exit_status": result.exit_status,
    }
    return json_escaped(finite_json.dumps({**head, **asdict(result)}, indent=1)) + "\n"
