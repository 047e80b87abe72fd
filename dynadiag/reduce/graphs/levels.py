"""The level of a reduction: Dynamo's graph first, then the ATen graphs that the survivor becomes; the simpler of both that fails stays."""

from __future__ import annotations

import operator
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch

from dynadiag.capture.graph_watch import save_graph_files
from dynadiag.children.forked import ChildReport, run_forked
from dynadiag.errors import DynadiagError, NothingFoundError, UnreadableInputError
from dynadiag.reduce.graphs.candidate import Candidate, own_copy
from dynadiag.reduce.graphs.guilty_part import GuiltyLayer, same_cause
from dynadiag.reduce.graphs.judge import Observation, observe_isolated
from dynadiag.reduce.graphs.loading import load_candidate
from dynadiag.reduce.graphs.observing import Tell, compiled, run_once, surroundings
from dynadiag.reduce.graphs.reduction import Reduction, ReductionOptions, reduce_graph
from dynadiag.reduce.graphs.setting import Setting, inner_of
from dynadiag.scratch import scratch
from dynadiag.torch_compat.aot.lowering import AotGraph, complete_joint, is_overload, watched_aot_graphs
from dynadiag.torch_compat.dynamo.compiling import configured, loudly

_ORDER = ("inference", "forward", "backward", "joint")


@dataclass(frozen=True, kw_only=True)
class Lowered:
    """One AOT graph, `kind` inference, forward, backward or joint; `candidate` is None when it could not be had (`why_not`)."""

    kind: str
    candidate: Candidate | None = None
    why_not: str | None = None


@dataclass(frozen=True, kw_only=True)
class Lowering:
    """The AOT graphs of a candidate; `operators` counts the ATen operators of all that are compiled (a joint graph is not)."""

    graphs: tuple[Lowered, ...]
    operators: int
    why_not: str | None = None


def lower(candidate: Candidate, setting: Setting, *, timeout_s: float) -> Lowering:
    """Run AOTAutograd as the backend of the setting does, in a child, without compiling what it makes."""
    with scratch("lowered") as folder:
        report = run_forked(lambda tell: _lower(candidate, setting, Path(folder), tell), timeout_s=timeout_s)
        told = [message for message in report.messages if "kind" in message]
        told.sort(key=lambda message: _ORDER.index(message["kind"]))
        graphs = tuple(_loaded(message, candidate) for message in told)
        trouble = next((message["broken"] for message in report.messages if "broken" in message), "")
        operators = sum(message["operators"] for message in told if message["kind"] != "joint")
    if graphs:
        return Lowering(graphs=graphs, operators=operators)
    return Lowering(graphs=(), operators=0, why_not=_why_none(report, trouble, timeout_s))


def _why_none(report: ChildReport, trouble: str, timeout_s: float) -> str:
    if report.timed_out:
        return f"it did not finish within {timeout_s:.0f} s"
    if report.signal is not None or report.exit_status != 0:
        return trouble.strip().splitlines()[-1] if trouble else f"the process ended with {report.signal or f'exit {report.exit_status}'}"
    return trouble.strip().partition("\n")[0] or "the backend does not use AOTAutograd"


def aot_setting(setting: Setting) -> Setting:
    """How an AOT graph is compiled alone: without gradients and autocast, which are in the graph by now; results are compared as before."""
    check = "raises" if setting.check == "raises" else "forward"
    return replace(setting, grad=False, backward=False, autocast=None, check=check)  # type: ignore[arg-type]


def aten_operators(module: torch.fx.GraphModule) -> int:
    """How many operators an ATen graph holds; taking one of several results is none."""
    return sum(node.op == "call_function" and node.target is not operator.getitem for node in module.graph.nodes)


def is_aten(module: torch.fx.GraphModule) -> bool:
    """Whether every operator is one of ATen's (or of a library of operators like it)."""
    calls = [node for node in module.graph.nodes if node.op in ("call_function", "call_method", "call_module")]
    return bool(calls) and all(is_overload(node.target) or node.target is operator.getitem for node in calls)


def _lower(candidate: Candidate, setting: Setting, folder: Path, tell: Tell) -> None:
    """In a child. A candidate that fails on the way still gives the graphs that were made before."""
    trouble = ""
    with surroundings(setting), configured(candidate.configs), loudly(), watched_aot_graphs() as found:
        try:
            run_once(candidate, setting, compiled(own_copy(candidate.module), setting))
        except Exception as error:  # noqa: BLE001 - the border around a candidate
            trouble = f"{type(error).__name__}: {error}"
    complete_joint(found)
    for number, graph in enumerate(found):
        tell(_saved(graph, folder / str(number)))
    if trouble:
        tell({"broken": trouble[:1000]})


def _saved(graph: AotGraph, folder: Path) -> dict[str, Any]:
    told: dict[str, Any] = {"kind": graph.kind, "operators": aten_operators(graph.module), "folder": str(folder)}
    if graph.inputs is None:
        return told | {"why_not": "it was never run"}
    if not all(isinstance(value, torch.Tensor | bool | int | float | None) for value in graph.inputs):
        return told | {"why_not": "an input is neither a tensor nor a number"}
    folder.mkdir()
    try:
        save_graph_files(str(folder), graph.module, graph.inputs)
    except Exception as error:  # noqa: BLE001 - the border around a candidate: a graph may hold what nobody can print
        return told | {"why_not": f"{type(error).__name__}: {error}"[:300]}
    return told


def _loaded(message: dict[str, Any], candidate: Candidate) -> Lowered:
    kind, why_not = message["kind"], message.get("why_not")
    if why_not is None:
        try:
            return Lowered(kind=kind, candidate=load_candidate(Path(message["folder"]), candidate.configs))
        except DynadiagError as error:
            why_not = error.message
    return Lowered(kind=kind, why_not=why_not)


Level = Literal["auto", "dynamo", "aot"]
_ABOVE_ATEN = ("dynamo", "aotautograd", "decompositions")
_LEAST_LOWERING_S = 120.0


@dataclass(frozen=True, kw_only=True)
class Descent:
    """What came of the ATen level. `found` is the reduction of an ATen graph, None where there is none to prefer; `why` says which is kept.

    `found` counts the queries of both levels; `spent` is the first reduction with the queries of both, at `level` ("aot" where what was
    captured was an ATen graph).
    """

    spent: Reduction
    found: Reduction | None
    why: str
    level: str = "dynamo"


def descend(found: Reduction, guilty: GuiltyLayer, options: ReductionOptions, level: Level) -> Descent:
    """Lower the survivor of Dynamo's level and reduce again the first of its AOT graphs that shows the same failure alone."""
    if is_aten(found.best.module):
        return Descent(spent=found, found=None, why=f"the captured graph is an ATen graph{_where(found.setting)}", level="aot")
    refusal = _why_not_at_all(found, guilty, level)
    if refusal is not None:
        return Descent(spent=found, found=None, why=refusal)
    limit_s = max(_LEAST_LOWERING_S, found.confirmed.timeout_s)
    lowering = lower(found.best, found.setting, timeout_s=limit_s)
    if lowering.why_not is not None:
        return Descent(spent=found, found=None, why=f"there is no ATen graph: {lowering.why_not}")
    if level == "auto" and lowering.operators <= 1:
        return Descent(spent=found, found=None, why="Dynamo's graph is already a single ATen operator")
    failing, said, asked = _first_failing(found, lowering)
    found = replace(found, queries=_sum(found.queries, {"confirm": asked}))
    if failing is None:
        return Descent(spent=found, found=None, why=f"no ATen graph fails on its own ({said})")
    return _reduced(found, *failing, lowering, options, level)


def reduce_captured_graph(candidate: Candidate, setting: Setting, options: ReductionOptions) -> Reduction:
    """As `reduce_graph`; an ATen graph that does not fail through `torch.compile` is given to the inner compiler, as inductor had got it.

    `torch.compile` takes an ATen graph through AOTAutograd and its passes again, which may leave another graph.
    """
    try:
        return reduce_graph(candidate, setting, options)
    except NothingFoundError as error:
        inner = inner_of(aot_setting(setting)) if is_aten(candidate.module) else None
        if inner is None or error.slug == "environment":
            raise
        try:
            return reduce_graph(candidate, inner, options)
        except NothingFoundError as second:
            what = f"{error.message}; passed directly to Inductor's inner compiler: {second.message}"
            raise NothingFoundError(what, exit_code=1) from second


def _why_not_at_all(found: Reduction, guilty: GuiltyLayer, level: Level) -> str | None:
    if level == "dynamo":
        return "asked for with --level dynamo"
    if found.best.earlier:
        return "the failing call comes after calls with different inputs, each of which may have its own graphs"
    if not found.complete:
        return "the search was interrupted before the ATen level"
    return f"the failure is above ATen, in the layer {guilty.layer}" if guilty.layer in _ABOVE_ATEN else None


def _first_failing(found: Reduction, lowering: Lowering) -> tuple[tuple[Lowered, Setting] | None, str, int]:
    """The graph with its setting, what the others did, and how many were asked. First as `torch.compile` takes them."""
    said: list[str] = []
    asked = 0
    outer = aot_setting(found.setting)
    for setting in [outer, *filter(None, [inner_of(outer)])]:
        for graph in lowering.graphs:
            if graph.candidate is None or (setting.inner and graph.kind == "joint"):
                said += [] if setting.inner else [f"{graph.kind} not run: {graph.why_not}"]
                continue
            seen, count = _asked(graph.candidate, setting, found)
            asked += count
            if seen is None:
                return (graph, setting), "", asked
            said.append(f"{graph.kind}{_where(setting)} {_describe(seen)}")
    return None, ", ".join(said), asked


def _asked(candidate: Candidate, setting: Setting, found: Reduction) -> tuple[Observation | None, int]:
    """None when it showed the failure, else what it did last; and how many times it ran."""
    repeats = found.confirmed.repeats
    for count in range(1, repeats + 1):
        seen = observe_isolated(candidate, setting, timeout_s=found.confirmed.timeout_s)
        if seen.failure is not None and same_cause(seen.failure, found.confirmed.failure):
            return None, count
    return seen, repeats


def _where(setting: Setting) -> str:
    return " in Inductor's inner compiler" if setting.inner else ""


def _describe(seen: Observation) -> str:
    if seen.invalid is not None:
        return f"not run: {seen.invalid}"
    return "passes" if seen.failure is None else f"fails differently: {seen.failure.title()}"


def _reduced(found: Reduction, graph: Lowered, setting: Setting, lowering: Lowering, options: ReductionOptions, level: Level) -> Descent:
    assert graph.candidate is not None
    journal = options.journal.with_name("journal-aot.jsonl") if options.journal is not None else None
    own = replace(options, kind=None, match=None, like=found.confirmed.failure, timeout_s=found.confirmed.timeout_s, journal=journal)
    try:
        lower_one = _reduced_anew(graph.candidate, setting, own)
    except NothingFoundError as error:
        return Descent(spent=found, found=None, why=f"the {graph.kind} graph failed on its own, and then no longer did: {error.message}")
    spent = _with_costs(found, lower_one, found)
    joined = _with_costs(replace(lower_one, original=found.original, asked=found.asked or found.confirmed.failure), found, lower_one)
    before, after = _order(lowering.operators, found), _order(aten_operators(lower_one.best.module), lower_one)
    sizes = f"{before[0]} ATen operators before, {after[0]} now"
    if after >= before and level == "auto":
        return Descent(spent=spent, found=None, why=f"the ATen graph is not simpler ({sizes})")
    return Descent(spent=spent, found=joined, why=f"the {graph.kind} graph fails on its own{_where(setting)} ({sizes})")


def _reduced_anew(candidate: Candidate, setting: Setting, options: ReductionOptions) -> Reduction:
    """The reduction; a journal that another ATen graph left behind is begun anew."""
    try:
        return reduce_graph(candidate, setting, options)
    except UnreadableInputError:
        return reduce_graph(candidate, setting, replace(options, resume=False))


def _order(operators: int, found: Reduction) -> tuple[Any, ...]:
    """What the compiler has to do with first: its ATen operators. Then the order of candidates, without the text of the two languages."""
    return (operators, *found.best.measure[:-2])


def _with_costs(kept: Reduction, other: Reduction, confirmed_by: Reduction) -> Reduction:
    """`kept`, having cost what both cost."""
    flaky = min((kept, other), key=lambda reduction: reduction.confirmed.failed / reduction.confirmed.of).confirmed
    return replace(
        kept,
        confirmed=replace(confirmed_by.confirmed, failed=flaky.failed, of=flaky.of),
        queries=_sum(kept.queries, other.queries),
        cpu_s=kept.cpu_s + other.cpu_s,
        search_cpu_s=kept.search_cpu_s + other.search_cpu_s,
        search_wall_s=kept.search_wall_s + other.search_wall_s,
        complete=kept.complete and other.complete,
        other_failures=_sum(kept.other_failures, other.other_failures),
        broken_passes={**kept.broken_passes, **other.broken_passes},
    )


def _sum(item: Any, other: Any) -> dict[str, int]:
    return dict(Counter(item) + Counter(other)) | {name: 0 for name in (*item, *other) if not item.get(name, 0) + other.get(name, 0)}
