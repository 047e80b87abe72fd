"""A candidate lowered to ATen: the graphs that AOTAutograd makes of it, each a candidate of its own with its real inputs."""

from __future__ import annotations

import operator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from dynadiag.capture.graph_watch import save_graph_files
from dynadiag.children.forked import ChildReport, run_forked
from dynadiag.errors import DynadiagError
from dynadiag.reduce.graphs.candidate import Candidate, own_copy
from dynadiag.reduce.graphs.loading import load_candidate
from dynadiag.reduce.graphs.observing import Tell, compiled, run, surroundings
from dynadiag.reduce.graphs.setting import Setting
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
            run(candidate, setting, compiled(own_copy(candidate.module), setting))
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
