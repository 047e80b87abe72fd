"""How places, counts, times and costs are written, the same in the terminal, in Markdown and in pictures."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import get_args

from dynadiag.facts.compiled_work import Work
from dynadiag.facts.lookups import is_from_text, refused_frames
from dynadiag.facts.wording import NO_RECORDS, listed, rank_text
from dynadiag.model import codes
from dynadiag.model.location import Location
from dynadiag.model.report import Cost, Finding, GraphBreak, Report, Severity, Summary
from dynadiag.model.run import Process, Run
from dynadiag.render.sanitise import clean

PATH_LIMIT = 120
_FEW_OPERATIONS = 2
_LONGEST_NAME = 40
_LIBRARY_FOLDERS = ("site-packages", "dist-packages")
_RESUME = re.compile(r"(?:.*<locals>\.)?((?:\w+\.)*)torch_dynamo_resume_in_(.+)_at_(\d+)")
_ON_STACK = re.compile(r"___stack\d+")
FALLBACK_KINDS: Mapping[str, str] = {
    "skipped_frame": "frame skipped",
    "recompile_limit": "recompile limit hit",
    "suppressed_error": "backend error suppressed",
    "aot_rejected": "AOTAutograd refused",
    "no_graph": "nothing to compile",
    "disabled": "torch.compiler.disable",
    "stance": "torch.compiler.set_stance",
    "env_disabled": "switched off by environment",
    "nothing_compiled": "nothing compiled",
}


def base_folder(run: Run) -> Path | None:
    """The folder that the files of a report are named relative to: where the program ran, if that is known."""
    return Path(run.info.cwd) if run.info.cwd else None


def path(file: str, base: Path | None) -> str:
    """The file name for people: relative to `base` when below it, `.../site-packages/` cut short, else as recorded.

    `base` is an absolute folder; the root, also the stand-in for a folder that was deleted, shortens nothing.
    """
    text = clean(file, limit=PATH_LIMIT * 4)
    if base is not None and base.name and PurePosixPath(text).is_relative_to(base) and text != str(base):
        text = str(PurePosixPath(text).relative_to(base))
    for folder in _LIBRARY_FOLDERS:
        head, found, tail = text.rpartition(f"/{folder}/")
        if found and head:
            text = f".../{folder}/{tail}"
    return text if len(text) <= PATH_LIMIT else "..." + text[3 - PATH_LIMIT :]


def place(location: Location | None, base: Path | None, *, function: bool = True) -> str:
    """`file:line in function`, or "no line known"."""
    if location is None:
        return "no line known"
    line = "" if location.line is None else f":{location.line}"
    name = f" in {clean(frame_name(location.function), limit=100)}" if function and location.function else ""
    return f"{path(location.file, base)}{line}{name}"


def plural(count: int, name: str, many: str | None = None) -> str:
    """`1 site`, `2 sites`, `1,234 events`."""
    return f"{count:,} {name if count == 1 else many or name + 's'}"


def seconds(value: float | None) -> str:
    """A duration given in seconds, with about three digits: `3.21 s`, `45.1 ms`; "not known" for None."""
    if value is None:
        return "not known"
    if value < 0.0995:
        return f"{value * 1000:.3g} ms"
    return f"{value:,.2f} s" if value < 100 else f"{value:,.0f} s"


def number(value: float) -> str:
    """A count as it is, any other number with at most four digits."""
    return f"{int(value):,}" if value == int(value) and abs(value) < 1e15 else f"{value:.4g}"


def cost(item: Cost) -> str:
    """`7 events (counted)`, `1.67 to 2.93 ms per call (derived: ...)`: a finding's cost with its unit and how the value was obtained."""
    unit = clean(item.unit, limit=60)
    if item.value == 1 and unit.endswith("s") and " " not in unit and len(unit) > 2:
        unit = unit[:-1]
    how = f"{clean(item.basis, limit=40)}: {clean(item.remark, limit=240)}" if item.remark else clean(item.basis, limit=40)
    return f"{_amount(item)} {unit} ({how})"


def _amount(item: Cost) -> str:
    if not math.isfinite(item.value):
        return "not known"
    low, high = (None if end is None or not math.isfinite(end) else number(float(f"{end:.3g}")) for end in (item.low, item.high))
    if low is None or high is None:
        return number(item.value)
    return f"at most {high}" if low == "0" else low if low == high else f"{low} to {high}"


def graphs_count(report: Report) -> str:
    """`3`, or `0 compiled (1 captured)` where none of the graphs that Dynamo captured was kept."""
    captured = sum(graph.kind == "dynamo" for graph in report.run.graphs)
    return f"{report.summary.graphs:,}" if report.summary.graphs or not captured else f"0 compiled ({captured:,} captured)"


def graphs_size(report: Report) -> str:
    """` (each of at most 2 operators)` where that is all that breaks and fallbacks left to compile, else nothing."""
    summary = report.summary
    found = [graph.size for graph in report.run.graphs if graph.kind == "dynamo"]
    sizes = [size for size in found if size is not None]
    counted = 0 < summary.graphs <= len(sizes) == len(found)
    if not counted or not (summary.graph_break_events or summary.fallbacks) or max(sizes) > _FEW_OPERATIONS:
        return ""
    return f" ({'each ' if summary.graphs > 1 else ''}of at most {plural(max(sizes), 'operator')})"


def breaks_count(summary: Summary) -> str:
    """Both numbers of the graph breaks: `3 sites, 7 events`."""
    return f"{plural(summary.graph_break_sites, 'site')}, {plural(summary.graph_break_events, 'event')}"


def recompiles_count(report: Report) -> str:
    """`7 (stable since call 15 of 36)`: how many there were, and whether they have ended, where calls were counted."""
    return f"{report.summary.recompiles:,}{recompiles_note(report)}"


def recompiles_note(report: Report) -> str:
    """` (2 of them refused at the limit; the last in call 20 of 24)`; empty where nothing more is known."""
    refused = sum(recompile.frame in refused_frames(report.run) for recompile in report.recompiles)
    of_them = f"{refused:,} of them " if report.summary.recompiles > 1 else ""
    notes = [*([f"{of_them}refused at the limit"] if refused else []), *filter(None, [recompiles_since(report)])]
    return f" ({'; '.join(notes)})" if notes else ""


def recompiles_since(report: Report) -> str:
    """`stable since call 15 of 36`, for the process that recompiled last by its share of calls; empty where calls were not counted."""
    run, again, last = report.run, {recompile.frame for recompile in report.recompiles}, dict[int, int]()
    limits = {fallback.frame for fallback in report.fallbacks if fallback.kind == "recompile_limit"}
    recompiled: dict[int, int] = {}
    limited_after = set[int]()
    for frame in run.frames:
        if frame.id in limits:
            limited_after.add(frame.key.process)
        if frame.call is not None:
            last[frame.key.process] = max(last.get(frame.key.process, 0), frame.call)
            if frame.id in again:
                recompiled[frame.key.process] = max(recompiled.get(frame.key.process, 0), frame.call)
                limited_after.discard(frame.key.process)
    if len(again) < report.summary.recompiles or not recompiled:
        return ""
    calls = {process.index: process.calls for process in run.processes if process.calls}
    latest = max(recompiled, key=lambda number: recompiled[number] / calls.get(number, recompiled[number]))
    call, total, on = recompiled[latest], calls.get(latest), rank_text(run, (latest,))
    if total == 1:
        said = "in the only call" + (", until the limit was hit" if latest in limited_after else "")
    elif total is None or total < last[latest]:
        said = f"the last in call {call:,}"
    elif latest in limited_after:
        said = f"the last in call {call:,} of {total:,}, then the limit was hit"
    elif call == total:
        said = f"still recompiling in call {call:,} of {total:,}"
    elif last[latest] < total and not limits and not run.info.exit_status:  # what ended a program may be the next recompile
        said = f"stable since call {last[latest] + 1:,} of {total:,}"
    else:
        said = f"the last in call {call:,} of {total:,}"
    return f"{said} on {clean(on)}" if on else said


def compiled_work(work: Work) -> str:
    """`train_step: 4 graph breaks per call at 3 lines; 926 of 927 operators run compiled, in 2 graphs`.

    A break in a loop or in a function that is called twice stops a call twice, so breaks per call are no lines.
    """
    name = None if work.only is None else clean(work.only.rpartition("<locals>.")[2])
    what = name if name is not None and len(name) <= _LONGEST_NAME else plural(work.functions, "compiled function")
    if work.unseen:
        total = plural(work.functions + work.unseen, "compiled function")
        what = f"{work.functions:,} of {total}" if what != name else f"{what} (1 of {total})"
    if work.eager:
        eager = listed([clean(part) for part in work.eager])
        opening = f"One call each of {what} and of {eager}, which run{'s' if len(work.eager) == 1 else ''} eagerly: "
    else:
        opening = f"{what}: " if work.functions == 1 else f"One call each of {what}: "
    lines = "" if work.break_lines is None else f" at {plural(work.break_lines, 'line')}"
    breaks = f"{_span(work.breaks, 'graph break')} per call{lines}; " if work.breaks[1] else ""
    time = "" if work.time is None else f" and {100 * work.time:.0f} % of the time"
    graphs = f", in {_span(work.graphs, 'graph')}" if work.graphs[1] else ""
    called = f"; Inductor calls {plural(work.as_in_eager, 'operator')} of its graphs one by one, as eager does" if work.as_in_eager else ""
    run = "runs" if work.compiled == 1 and work.time is None else "run"
    return f"{opening}{breaks}{work.compiled:,} of {plural(work.operators, 'operator')}{time} {run} compiled{graphs}{called}"


def _span(ends: tuple[int, int], what: str) -> str:
    least, most = ends
    return plural(most, what) if least == most else f"{f'{least:,} to' if least else 'at most'} {plural(most, what)}"


def distinct(values: Iterable[str | None]) -> str | None:
    """The different known values in order of appearance, joined by commas, or None."""
    return ", ".join(dict.fromkeys(clean(value, limit=80) for value in values if value)) or None


def command(report: Report) -> str:
    """The recorded command line, or what the log says of it."""
    info = report.run.info
    if info.command:
        return clean(" ".join(info.command))
    argv = next((process.argv for process in report.run.processes if process.argv), None)
    return clean(" ".join(argv)) if argv else "a log without a command line"


def ending(report: Report) -> str | None:
    """How the script ended, or None for a foreign log."""
    info = report.run.info
    if info.running:
        return "still running"
    if info.killed or info.unended:
        return "not ended when this was written" if info.unended else "ended while observed" if info.observed else "dynadiag was killed"
    parts = (
        None if info.exit_status is None else f"exit {info.exit_status}",
        None if info.signal is None else f"killed by {clean(info.signal, limit=40)}",
        "time limit" if info.timed_out else None,
        "interrupted" if info.interrupted else None,
        "stopped when stable" if info.stopped_stable else None,
    )
    return ", ".join(part for part in parts if part) or None


@dataclass(frozen=True, slots=True)
class Environment:
    """What ran, one value a line of the environment block; None is not known."""

    torch: str | None
    python: str | None
    device: str | None
    processes: int
    ranks: tuple[int, ...]

    @property
    def ranks_in_words(self) -> str | None:
        """`rank 2` of a log of one rank, `4 ranks` of more; None where no process has a rank."""
        if not self.ranks:
            return None
        return f"rank {self.ranks[0]}" if len(self.ranks) == 1 else plural(len(self.ranks), "rank")


def environment(processes: Iterable[Process]) -> Environment:
    """The versions and devices of all recorded processes together."""
    known = tuple(processes)
    return Environment(
        torch=distinct(process.torch for process in known),
        python=distinct(process.python and process.python.split()[0] for process in known),
        device=distinct(process.device for process in known),
        processes=len(known),
        ranks=tuple(sorted({process.rank for process in known if process.rank is not None})),
    )


def frame_name(name: str | None) -> str:
    """A frame's name for people: `Model.forward, resumed at line 41` for a resume function, without the functions around it.

    Dynamo calls them `torch_dynamo_resume_in_<name>_at_<line>` (`torch/_dynamo/resume_execution.py`, torch 2.11 and 2.15).
    """
    text = clean(name or "unnamed", limit=200)
    resumed = _RESUME.fullmatch(text)
    return f"{resumed[1]}{resumed[2]}, resumed at line {resumed[3]}" if resumed else text


def value_words(text: str) -> str:
    """What torch says of a value with `value` for what it calls `___stack0`: one that lay on Python's stack at a graph break."""
    return _ON_STACK.sub("value", text)


def frame_label(report: Report, frame_id: str | None) -> str:
    """`f1 train_step, resumed at line 41 [1/0]`, or "-" for a frame that is not in the report."""
    frame = report.run.frame(frame_id) if frame_id else None
    return f"{frame.id} {clean(frame_name(frame.name), limit=80)} [{frame.key.text}]" if frame else "-"


def frames_count(report: Report) -> str:
    """`7: 6 compiled (2 of them up to a graph break), 1 skipped`, with failed ones when there are any."""
    summary, outcomes = report.summary, [frame.outcome for frame in report.run.frames]
    unfinished = sum(frame.unfinished for frame in report.run.frames)
    broke, failed = outcomes.count("broke"), outcomes.count("failed") - unfinished
    partly = f" ({broke:,} of them up to a graph break)" if broke else ""
    rest = (f", {failed:,} failed" if failed else "") + (f", {unfinished:,} not finished" if unfinished else "")
    return f"{summary.frames:,}: {summary.frames_compiled:,} compiled{partly}, {summary.frames_skipped:,} skipped{rest}"


def notes(report: Report) -> tuple[str, ...]:
    """The notes of the report and of its run, each once."""
    return tuple(dict.fromkeys((*changed_sources(report), *report.notes, *report.run.notes)))


def changed_sources(report: Report) -> tuple[str, ...]:
    """One sentence on files that changed or went since the recording, or nothing."""
    if not report.changed_sources:
        return ()
    base = base_folder(report.run)
    names = [path(file, base) for file in report.changed_sources[:4]]
    more = len(report.changed_sources) - len(names)
    files = ", ".join([*names, *([f"{more:,} more"] if more else [])])
    were = "was" if len(report.changed_sources) == 1 else "were"
    return (f"{files} changed or {were} deleted since the recording: the lines shown, and their numbers, are those of the recording",)


def evidence_breaks(report: Report) -> dict[str, GraphBreak]:
    """The graph breaks by id, to follow a finding's evidence."""
    return {site.id: site for site in report.graph_breaks}


def failed_passes(report: Report) -> str | None:
    """What is said first where errors of dynadiag's own cost findings: the counts are too low then."""
    if not report.failed_passes:
        return None
    names = ", ".join(report.failed_passes)
    return f"INCOMPLETE: dynadiag failed in {names}. What that finds is missing below, also in the counts; the notes have the error."


def nothing_compiled(report: Report) -> bool:
    """Whether the run compiled no graph at all, which is said before everything else."""
    return report.summary.graphs == 0 and report.summary.frames_compiled == 0 and not is_from_text(report.run)


def nothing_words(report: Report) -> str:
    """The headline of a run without a graph: what was not recorded may have been compiled."""
    told = (finding.title for finding in report.findings if finding.code == codes.NOTHING_COMPILED)
    unseen = report.run.info.stopped or any(title.startswith(NO_RECORDS) for title in told)
    return NO_RECORDS if unseen else "Nothing was compiled"


def by_severity(findings: Iterable[Finding]) -> Iterator[tuple[str, int]]:
    """The severities that occur, worst first, with their counts."""
    counts = Counter(finding.severity for finding in findings)
    return ((name, counts[name]) for name in get_args(Severity) if counts[name])


def top_ops(ops: Mapping[str, int], count: int) -> str:
    """The commonest ops of a graph with their counts: `linear 12, gelu 4`."""
    ranked = sorted(ops.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{clean(name, limit=40)} {times}" for name, times in ranked[:count])
