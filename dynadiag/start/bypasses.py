"""What torch's reasons for passing a cache by mean for a program, and what is to be changed."""

from __future__ import annotations

# ruff: noqa: E501 - a table
import re
from typing import NamedTuple

from dynadiag.diff.compare import source_line
from dynadiag.diff.result import SourceLine
from dynadiag.errors import UnreadableInputError
from dynadiag.model.run import Frame, Run
from dynadiag.start.key_causes import Environment, shortened
from dynadiag.start.result import Cause, CauseKind
from dynadiag.start.setting_lines import SettingLines
from dynadiag.trace import graph_nodes, read_payload

PASSES = (
    "pre_grad_custom_pass",
    "post_grad_custom_pre_pass",
    "post_grad_custom_post_pass",
    "joint_custom_pre_pass",
    "joint_custom_post_pass",
    "_pre_fusion_custom_pass",
    "_post_fusion_custom_pass",
    "_fuse_ddp_communication_passes",
    "custom_partitioner_fn",
)
_UUID = "Derive the pass from torch._inductor.custom_graph_pass.CustomGraphPass, and return from its uuid() what identifies its code"


class _Reason(NamedTuple):
    """What a reason means: the kind, words, what sets it, and what to change."""

    pattern: re.Pattern[str]
    kind: CauseKind
    words: str
    names: tuple[str, ...] = ()
    option: str | None = None
    cure: str | None = None


# torch/_inductor/codecache.py and torch/_functorch/_aot_autograd/autograd_cache.py, 2.11 and 2.15.
_REASONS = (
    _Reason(re.compile(r"[Uu]nsupported .*custom (?:pass|partitioner)|custom pass", re.IGNORECASE), "custom_pass", "a custom pass has no uuid()", PASSES, None, _UUID),
    _Reason(re.compile(r"FX graph cache is not enabled"), "caches_off", "the graph cache is off", ("fx_graph_cache", "force_disable_caches"), "fx_graph_cache", "Leave torch._inductor.config.fx_graph_cache on"),
    _Reason(re.compile(r"freezing|frozen", re.IGNORECASE), "not_cacheable", "freezing puts the weights into the code, which is not cached", ("freezing",), "freezing", "Leave torch._inductor.config.freezing off where the start matters more than the speed"),
    _Reason(re.compile(r"context_fn"), "not_cacheable", "a checkpoint's context_fn has no cache_hash", ("context_fn", "checkpoint"), None, "Set context_fn.cache_hash to a text that identifies what it does"),
    _Reason(re.compile(r"runtime_estimator|knapsack|solver", re.IGNORECASE), "not_cacheable", "a custom estimator or solver has no uuid()", ("activation_memory_budget_runtime_estimator", "activation_memory_budget_solver"), None, "Give it a uuid()"),
)  # fmt: skip
_TARGET = re.compile(r"Unsupported call_function target (\S.*?)\s*(?:\n|\. ?\n|$)")
_FUNCTION = re.compile(r"Function name: (\w+)")


def bypass_cause(why: str | None, run: Run, frame: Frame, environment: Environment, lines: SettingLines) -> Cause:
    """The cause that torch's reason tells."""
    text = (why or "").strip()
    reason = next((item for item in _REASONS if item.pattern.search(text)), None)
    shown = shortened(text) or "torch gave no reason"
    if reason is None:
        function = _FUNCTION.search(text)
        return Cause(
            kind="not_cacheable",
            what=f"torch does not cache this graph: {shown}",
            place=None if function is None else _call_of(function[1], run, frame),
            cure=_MARKED if _TARGET.search(text) else None,
        )
    variable = environment.for_option(reason.option) if reason.option else None
    by = "" if variable is None else f", by the variable {variable[0]} ({variable[1] or 'not set'} -> {variable[2] or 'not set'})"
    place = lines.line_of(reason.names) if variable is None else None
    return Cause(kind=reason.kind, what=f"{reason.words}{by} (torch: {shown})", place=place, cure=reason.cure)


_MARKED = "If its result depends on its inputs alone, name it in torch._inductor.config.unsafe_marked_cacheable_functions"


def _call_of(name: str, run: Run, frame: Frame) -> SourceLine | None:
    """The line that calls a function of this name in the frame's graph."""
    for graph in run.graphs:
        if graph.frame == frame.id and graph.kind == "dynamo" and graph.text is not None:
            try:
                nodes = graph_nodes(read_payload(graph.text))
            except UnreadableInputError:
                continue
            for node in nodes:
                if node.target.rpartition(".")[2] == name and node.location is not None:
                    return source_line(node.location, run)
    return None
