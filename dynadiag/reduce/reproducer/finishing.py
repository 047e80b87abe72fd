"""From the reduced graph to the proven file, and what comes with it: pictures, the table of layers, `report.md` and its page."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from dynadiag.children.answer_cache import digest, remembered
from dynadiag.reduce.graphs.candidate import Candidate, own_copy
from dynadiag.reduce.graphs.guilty_part import GuiltyLayer, Suspected, bisect, find_guilty_layer, guilt_of
from dynadiag.reduce.graphs.levels import Level, descend
from dynadiag.reduce.graphs.reduction import Reduction, ReductionOptions
from dynadiag.reduce.graphs.setting import compiler_name
from dynadiag.reduce.reproducer.ablation import Cell, Stop, ablate, cells_of
from dynadiag.reduce.reproducer.bug_report import BugReport, about_graph, document_of
from dynadiag.reduce.reproducer.graph_outcome import Papers, Written, flaky_note, story_of, write_reproducer
from dynadiag.reduce.reproducer.proving import headline
from dynadiag.reduce.reproducer.result_files import border, figures, machine_facts, write_report, write_text
from dynadiag.render.drawing import drawn
from dynadiag.render.graph_picture import graph_picture
from dynadiag.render.recorded_graph import RecordedGraph
from dynadiag.trace import graph_nodes

_LONGEST_PICTURE = 500_000
"""Characters; a longer one is beside the page only."""


@dataclass(frozen=True, kw_only=True)
class FinishOptions:
    """`ablation_timeout_s` is for one cell of the table, None for no table; `steps` are layers that were asked before: with them the
    table is what they gave, and nothing is run; `with_gpu` asks for the GPU's name; `warm_up` comes before
    the first cell; `stop` may give a reason to run no further cell; `notes` are further sentences for the report,
    `guilty` the guilty layer, `command` what was typed.
    """

    ablation_timeout_s: float | None = None
    steps: Mapping[str, str] | None = None
    with_gpu: bool = False
    notes: tuple[str, ...] = ()
    guilty: str = "not looked for"
    command: str = ""
    warm_up: Callable[[], None] = lambda: None
    stop: Stop = lambda: None


def finish(reduction: Reduction, written: Written, out: Path, options: FinishOptions) -> Papers:
    """Write `before.svg`, `after.svg`, `kept.svg`, `report.md` and `report.html` into `out`. What fails costs only itself: its reason is in
    the result.
    """
    why: dict[str, str] = {}
    pictures: dict[str, str | None] = {"before": None, "after": None, "kept": None}
    with border("pictures", why):
        pictures |= _draw_all(reduction.original, reduction.best, out)
    cells = _cells(reduction, options)
    report = None
    with border("report", why):
        told = document_of(_report(reduction, written, cells, options, _shown(pictures, out)))
        write_report(told, out, why)
        report = "report.md"
    return Papers(pictures=pictures, ablation=cells, report=report, why=why)


def _cells(reduction: Reduction, options: FinishOptions) -> tuple[Cell, ...]:
    if options.ablation_timeout_s is None:
        return ()
    if options.steps is not None:
        return cells_of(options.steps, reduction.setting)
    if options.stop() is None:
        options.warm_up()
    return ablate(reduction.best, reduction.setting, reduction.confirmed.failure, timeout_s=options.ablation_timeout_s, stop=options.stop)


def _report(
    reduction: Reduction, written: Written, cells: tuple[Cell, ...], options: FinishOptions, pictures: Sequence[tuple[str, str]]
) -> BugReport:
    proof, notes = written.proof, [*options.notes]
    if (flaky := flaky_note(reduction)) is not None:
        notes.append(flaky)
    if written.almost is not None:
        notes.append(f"`almost.py` is the closest program found that does not fail: {written.almost_differs}.")
    return BugReport(
        failure=reduction.confirmed.failure,
        command=options.command,
        about=about_graph(reduction.confirmed.failure, compiler_name(reduction.setting)),
        story=story_of(reduction),
        source=written.path.read_text("utf-8") if written.path is not None else None,
        source_why=written.why_not,
        cells=cells,
        facts=machine_facts(with_gpu=options.with_gpu),
        notes=notes,
        other_failures=reduction.other_failures,
        error=proof.output if proof.holds and reduction.confirmed.failure.exceptions else None,
        proof=headline({"reproduced": proof.reproduced, "runs": proof.runs}),
        figures=(*figures(reduction, "nodes", reduction.original.nodes, reduction.best.nodes), ("guilty layer", options.guilty)),
        pictures=pictures,
    )


def _shown(pictures: Mapping[str, str | None], out: Path) -> list[tuple[str, str]]:
    """The picture for the page, which shows the graph before and after in one."""
    text = (out / name).read_text("utf-8") if (name := pictures["kept"]) else ""
    return [(text, "What is left of the graph, in colour")] if 0 < len(text) <= _LONGEST_PICTURE else []


def _draw_all(before: Candidate, after: Candidate, out: Path) -> Mapping[str, str | None]:
    """Write `before.svg`, `after.svg`, and `kept.svg`, the original with what is kept in colour; gives their names."""
    original, rest = _graph(before), _graph(after)
    left = {(node.name, node.target) for node in rest.nodes}
    pictures = {
        "before": graph_picture(original, title=f"before: {before.nodes} nodes"),
        "after": graph_picture(rest, title=f"after: {after.nodes} nodes"),
        "kept": graph_picture(original, title="What is left of the graph, in colour", kept=left),
    }
    for name, picture in pictures.items():
        write_text(drawn(picture).text, out / f"{name}.svg")
    return {name: f"{name}.svg" for name in pictures}


def _graph(candidate: Candidate) -> RecordedGraph:
    """The graph as its text shows it, with the modules that the capture knew."""
    module = own_copy(candidate.module)
    text = module.print_readable(print_output=False, include_stride=True, include_device=True)
    modules = {node.name: _modules(node.meta.get("dynadiag_module_stack")) for node in candidate.module.graph.nodes}
    return RecordedGraph(nodes=tuple(replace(node, modules=modules.get(node.name, ())) for node in graph_nodes(text)))


def _modules(stack: object) -> tuple[str, ...]:
    return tuple(stack.split(" > ")) if isinstance(stack, str) and stack else ()


# From the reduced graph to the proven file: the guilty layer, the ATen level, the guilty pass, and the level whose reproducer holds.

_LEAST_PROOF_S = 120.0


@dataclass(frozen=True, kw_only=True)
class ConcludeOptions:
    """`level` is the one asked for; `bisect` looks for the guilty pass; `on_gpu` when the graph lives there; `stop` ends it early."""

    level: Level = "auto"
    bisect: bool = True
    on_gpu: bool = False
    stop: Callable[[], bool] = lambda: False


@dataclass(frozen=True, kw_only=True)
class Conclusion:
    """What is kept: the reduction, the layer with the guilty part, the files, and the `level` with the reason for it."""

    reduction: Reduction
    guilty: GuiltyLayer
    written: Written
    level: str
    level_why: str


def conclude(found: Reduction, out: Path, reducing: ReductionOptions, options: ConcludeOptions) -> Conclusion:
    """Try the ATen level; its result is kept only when its file is proven, else that of Dynamo's level is written."""
    confirmed = found.confirmed
    repeats = confirmed.repeats
    if options.stop():
        return _written(found, GuiltyLayer(layer="not looked for"), out, options, level="dynamo", why="the search was interrupted")
    guilty = find_guilty_layer(found.best, found.setting, confirmed.failure, timeout_s=confirmed.timeout_s, repeats=repeats)
    descent = descend(found, guilty, reducing, options.level)
    why = descent.why
    if descent.found is not None:
        lowered = _written(descent.found, guilty, out, options, level="aot", why=why)
        if lowered.written.proof.holds or (options.level == "aot" and lowered.written.path is not None):
            return lowered
        proof = lowered.written.proof
        why = lowered.written.why_not or f"it failed in {proof.reproduced} of {proof.runs} fresh processes"
        why = f"the reproducer at ATen level is not proven: {why}"
    return _written(descent.spent, guilty, out, options, level=descent.level, why=why)


def _written(reduction: Reduction, guilty: GuiltyLayer, out: Path, options: ConcludeOptions, *, level: str, why: str) -> Conclusion:
    if options.bisect and not options.stop():
        reduction, guilty = _bisected(reduction, guilty, options)
    limit_s = max(_LEAST_PROOF_S, reduction.confirmed.timeout_s)
    written = write_reproducer(reduction, guilty, out, timeout_s=limit_s, level=level)
    return Conclusion(reduction=reduction, guilty=guilty, written=written, level=level, level_why=why)


def _bisected(reduction: Reduction, guilty: GuiltyLayer, options: ConcludeOptions) -> tuple[Reduction, GuiltyLayer]:
    confirmed = reduction.confirmed
    subject = Suspected(
        candidate=reduction.best,
        setting=reduction.setting,
        timeout_s=confirmed.timeout_s,
        repeats=confirmed.repeats,
        on_gpu=options.on_gpu,
        stop=options.stop,
    )
    key = f"guilt {reduction.best.key} {digest(json.dumps(reduction.setting.to_json(), sort_keys=True, default=str), confirmed.timeout_s)}"
    # An interrupted search knows nothing.
    guilt = guilt_of(remembered(key, lambda: asdict(bisect(subject)), keep=lambda answer: not options.stop()))
    # What an interrupted search did not find may still be there.
    return replace(reduction, cpu_s=reduction.cpu_s + guilt.cpu_s), replace(guilty, guilt=None if options.stop() else guilt)
