"""The ATen graphs of a captured graph, each with the inputs of a real run, and the node of Dynamo's graph that each operator comes from."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch.fx import Node

from dynadiag.facts.guard_sources import readable
from dynadiag.fx.rebuild import MODULE_STACK
from dynadiag.reduce.graphs.candidate import Candidate, own_copy
from dynadiag.reduce.graphs.levels import aot_setting
from dynadiag.reduce.graphs.loading import recipes
from dynadiag.reduce.graphs.observing import compiled, configs_of, run_once
from dynadiag.reduce.graphs.setting import Setting
from dynadiag.torch_compat.aot.lowering import watched_aot_graphs
from dynadiag.torch_compat.dynamo.compiling import configured, loudly

INPUT_SOURCE = "dynadiag_input_source"
_FRAME = re.compile(r'File "(?P<file>[^"]*)", line (?P<line>\d+), in (?P<function>.*)\n\s*(?P<code>.*)')
_TORCH = str(Path(torch.__file__).parent) + os.sep
_MARK = "<dynadiag>"
_MARKED = re.compile(rf'File "{re.escape(_MARK)}", line 0, in (\w+)')


@dataclass(frozen=True, kw_only=True)
class AtenGraph:
    """One AOT graph before decompositions, `kind` inference, forward or backward; `origins` has Dynamo's node by the name of a node."""

    kind: str
    candidate: Candidate
    setting: Setting
    origins: dict[str, Node]


def aten_graphs(candidate: Candidate, setting: Setting) -> list[AtenGraph]:
    """The graphs that AOTAutograd makes of the candidate without decompositions, in the order in which they run."""
    lowering = replace(setting, backend="aot_eager", mode=None, options={})
    module = own_copy(candidate.module)
    for node in module.graph.nodes:
        node.meta["stack_trace"] = f'  File "{_MARK}", line 0, in {node.name}\n    {node.name}\n'
    with configured(configs_of(candidate, setting)), loudly(), watched_aot_graphs() as found:
        run_once(candidate, lowering, compiled(module, lowering))
    nodes = {node.name: node for node in candidate.module.graph.nodes}
    return [
        AtenGraph(
            kind=graph.kind,
            candidate=Candidate(graph.module, tuple(recipes(graph.inputs, graph.kind)), candidate.configs),
            setting=aot_setting(setting),
            origins={node.name: nodes[origin] for node in graph.module.graph.nodes if (origin := _origin(node)) in nodes},
        )
        for graph in found
        if graph.kind != "joint" and graph.inputs is not None
    ]


def _origin(node: Node) -> str:
    marked = _MARKED.findall(str(node.meta.get("stack_trace") or ""))
    return marked[-1] if marked else ""


def line_of(node: Node | None) -> dict[str, Any] | None:
    """The innermost line outside of torch that a node of Dynamo's graph comes from; the innermost where all are torch's."""
    trace = node.meta.get("stack_trace") if node is not None else None
    frames = list(_FRAME.finditer(trace)) if isinstance(trace, str) else []
    if not frames:
        return None
    last = next((frame for frame in reversed(frames) if not frame["file"].startswith(_TORCH)), frames[-1])
    return {"file": last["file"], "line": int(last["line"]), "function": last["function"].strip(), "code": last["code"].strip()}


def module_of(node: Node | None) -> str | None:
    """The module of the user's that a node of Dynamo's graph is in, as recorded."""
    stack = node.meta.get(MODULE_STACK) if node is not None else None
    return readable(stack.split(" > ")[-1]) if isinstance(stack, str) and stack else None


def input_name(node: Node) -> str:
    """An input of Dynamo's graph as the program names it; by its node where the capture does not say."""
    source = node.meta.get(INPUT_SOURCE)
    return readable(source) if source else str(node.target)
