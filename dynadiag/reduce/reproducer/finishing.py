"""From the reduced graph to the proven file, and what comes with it: pictures, the table of layers, `report.md` and its page."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from dynadiag.children.answer_cache import digest, remembered
from dynadiag.reduce.core.failure import COMPARED
from dynadiag.reduce.graphs.candidate import Candidate, own_copy
from dynadiag.reduce.graphs.guilty_part import (
    Answer,
    GuiltyLayer,
    Suspected,
    answers_of,
    bisect,
    disagreement,
    find_guilty_layer,
    guilt_of,
)
from dynadiag.reduce.graphs.levels import Level, descend
from dynadiag.reduce.graphs.reduction import Reduction, ReductionOptions, reduce_further, suspected
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
    """Write `before.svg`, `after.svg`, and `kept.svg`, the original with what is kept in colour, each with its `.gv`; gives their names."""
    original, rest = _graph(before), _graph(after)
    left = {(node.name, node.target) for node in rest.nodes}
    pictures = {
        "before": graph_picture(original, title=f"before: {before.nodes} nodes"),
        "after": graph_picture(rest, title=f"after: {after.nodes} nodes"),
        "kept": graph_picture(original, title="What is left of the graph, in colour", kept=left),
    }
    for name, picture in pictures.items():
        drawing = drawn(picture)
        write_text(drawing.text, out / f"{name}.svg")
        if drawing.dot is not None:
            write_text(drawing.dot, out / f"{name}.gv")
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
_MOST_CAUSES = 8
"""How often the search goes on from an earlier graph."""


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
    """Try the ATen level; its result is kept only when its file is proven, else that of Dynamo's level is written.

    Where numbers are wrong the captured graph is asked what the report would claim. If it answers otherwise, the reduced graph fails for
    another cause: what led there is taken back, and the search goes on from the last graph that answered as the captured one.
    """
    causes: list[Answer] = []
    while True:
        last = _concluded(found, out, reducing, options)
        if isinstance(last, Conclusion):
            return last
        causes.append(last)
        found = _taken_back(found, causes, reducing, options)


def _concluded(found: Reduction, out: Path, reducing: ReductionOptions, options: ConcludeOptions) -> Conclusion | Answer:
    """What is kept, or what the captured graph answers otherwise than the reduced one."""
    confirmed = found.confirmed
    repeats = confirmed.repeats
    if options.stop():
        return _written(found, GuiltyLayer(layer="not looked for"), out, level="dynamo", why="the search was interrupted")
    layers = find_guilty_layer(found.best, found.setting, confirmed.failure, timeout_s=confirmed.timeout_s, repeats=repeats)
    if (other := _disagreement(found, answers_of(layers), options)) is not None:
        return other
    descent = descend(found, layers, reducing, options.level)
    why = descent.why
    if descent.found is not None:
        lower, guilty = _bisected(descent.found, layers, options)
        if (other := _disagreement(found, _of_guilt(guilty), options)) is not None:
            why = f"the ATen graph fails for another cause than the captured graph, which {other.describe()}"
        else:
            lowered = _written(lower, guilty, out, level="aot", why=why)
            if lowered.written.proof.holds or (options.level == "aot" and lowered.written.path is not None):
                return lowered
            proof = lowered.written.proof
            why = lowered.written.why_not or f"it failed in {proof.reproduced} of {proof.runs} fresh processes"
            why = f"the reproducer at ATen level is not proven: {why}"
    spent, guilty = _bisected(descent.spent, layers, options)
    if (other := _disagreement(found, _of_guilt(guilty), options)) is not None:
        return other
    return _written(spent, guilty, out, level=descent.level, why=why)


def _disagreement(found: Reduction, answers: Sequence[Answer], options: ConcludeOptions) -> Answer | None:
    if found.confirmed.failure.kind not in COMPARED or found.best is found.original or options.stop():
        return None
    return disagreement(answers, _suspected(found.original, found, options))


def _of_guilt(guilty: GuiltyLayer) -> list[Answer]:
    """The answers beside those of the layers."""
    return [answer for answer in answers_of(guilty) if answer.change.layer is None]


def _taken_back(found: Reduction, causes: Sequence[Answer], reducing: ReductionOptions, options: ConcludeOptions) -> Reduction:
    """The reduction that goes on from the last adopted graph that answers as the captured one; that one itself when no end is in sight."""
    if len(causes) > _MOST_CAUSES:
        return replace(found, best=found.original, almost=None)
    agreeing, other = 0, len(found.adopted) - 1
    while other - agreeing > 1:
        middle = (agreeing + other) // 2
        if disagreement(causes[-1:], _suspected(found.adopted[middle], found, options)) is None:
            agreeing = middle
        else:
            other = middle
    return reduce_further(found, found.adopted[agreeing], causes, reducing)


def _written(reduction: Reduction, guilty: GuiltyLayer, out: Path, *, level: str, why: str) -> Conclusion:
    limit_s = max(_LEAST_PROOF_S, reduction.confirmed.timeout_s)
    written = write_reproducer(reduction, guilty, out, timeout_s=limit_s, level=level)
    return Conclusion(reduction=reduction, guilty=guilty, written=written, level=level, level_why=why)


def _suspected(candidate: Candidate, reduction: Reduction, options: ConcludeOptions) -> Suspected:
    return suspected(candidate, reduction.setting, reduction.confirmed, on_gpu=options.on_gpu, stop=options.stop)


def _bisected(reduction: Reduction, guilty: GuiltyLayer, options: ConcludeOptions) -> tuple[Reduction, GuiltyLayer]:
    if not options.bisect or options.stop():
        return reduction, guilty
    confirmed, subject = reduction.confirmed, _suspected(reduction.best, reduction, options)
    key = f"guilt {reduction.best.key} {digest(json.dumps(reduction.setting.to_json(), sort_keys=True, default=str), confirmed.timeout_s)}"
    # An interrupted search knows nothing.
    guilt = guilt_of(remembered(key, lambda: asdict(bisect(subject)), keep=lambda answer: not options.stop()))
    # What an interrupted search did not find may still be there.
    return replace(reduction, cpu_s=reduction.cpu_s + guilt.cpu_s), replace(guilty, guilt=None if options.stop() else guilt)
