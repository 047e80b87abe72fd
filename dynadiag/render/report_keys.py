"""The objects of `report.json` that no class of `model` has as they are written; the others are its dataclasses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, TypedDict

from dynadiag.model.digest import RankComparison
from dynadiag.model.json_keys import Bounds, Count, KeysOf, ReasonIn, Share
from dynadiag.model.location import Location
from dynadiag.model.parity import Parity
from dynadiag.model.report import (
    CompileTime,
    Fallback,
    Finding,
    GraphBreak,
    GuardReport,
    Mutation,
    RankDifference,
    Recompile,
    Summary,
    Transition,
)
from dynadiag.model.run import CompileMetrics

REASONS: Mapping[type, Mapping[str, str]] = {
    GraphBreak: {
        "gb_id": "torch gave this break no id",
        "own_frame": "the recorded stack has no frame outside site-packages and the standard library",
        "torch_frame": "torch recorded no user frame",
    },
    Transition: {"limit": "the recompile limit was not recorded"},
    Fallback: {"own_frame": "the record names no line outside site-packages and the standard library"},
    GuardReport: {"latency_us": "torch did not record the cost of these guards"},
    Finding: {"cost": "nothing was measured or counted for this finding"},
}
"""Why a field of these is null; each has a key `<name>_why`."""
OF_MUTATIONS = ("bytes_touched", "bytes_written_back", "no_grad", "static", "where", "requires_grad", "graph", "effects", "sites")
"""Likewise, but each mutation says itself why."""
OF_SUMMARY = ("mutations", "compile_s")


_BREAK, _TRANSITION, _FALLBACK, _GUARDS, _FINDING = (KeysOf((kind,), tuple(reasons)) for kind, reasons in REASONS.items())


class ProcessKeys(TypedDict):
    """One recorded process."""

    index: Count
    pid: int | None
    parent_pid: int | None
    rank: int | None
    torch: str | None
    python: str | None
    device: str | None
    argv: Sequence[str] | None
    started_at: str | None
    environment: Mapping[str, str]
    machine: Annotated[Mapping[str, str], "what PyTorch's bug form asks of the machine, by the names that torch.utils.collect_env gives it"]
    log: str
    torch_why: str | None
    device_why: str | None
    events: Annotated[Count, "records read from this process's log"]
    skipped: Mapping[str, Count]
    unknown_artifacts: Mapping[str, Count]
    config: Mapping[str, Mapping[str, Any]]
    hooks: Mapping[str, str]
    counters: Mapping[str, Any] | None
    calls: Annotated[Count | None, "how often the process called what torch.compile gave; null where that was not recorded"]
    finished: bool
    alike: Annotated[
        int | None,
        "the index of the process that was read in its place, because the digests of both are equal; null where it was read",
    ]
    from_text: Annotated[
        bool, "true where it is known only from lines that torch printed: what was compiled without a message is not in them"
    ]


class RunKeys(TypedDict):
    """What was recorded, and how it ended."""

    dynadiag: str | None
    dynadiag_why: str | None
    directory: str | None
    started_at: Annotated[str | None, "ISO 8601, UTC"]
    started_at_why: str | None
    ended_at: str | None
    cwd: str | None
    command: Sequence[str] | None
    command_why: str | None
    exit_status: int | None
    exit_status_why: str | None
    signal: Annotated[str | None, "name of the signal that ended the script, null when none did"]
    complete: Annotated[bool | None, "false when the recording was cut short, null when not known"]
    complete_why: str | None
    timed_out: bool
    interrupted: bool
    stopped_stable: bool
    running: Annotated[bool, "the script is running now, on this machine"]
    killed: Annotated[bool, "dynadiag was killed while the script ran"]
    unended: Annotated[bool, "the script had not ended when this was written; whether it still runs cannot be seen from this machine"]
    stopped: Annotated[Sequence[str], "one line for each process whose recording ended before the process did"]
    records: Count
    records_skipped: Count
    records_skipped_by: Mapping[str, Count]
    config: Mapping[str, Mapping[str, Any]]
    caches: Mapping[str, Mapping[str, Count]]
    processes: Sequence[ProcessKeys]
    notes: Sequence[str]


class FrameKeys(TypedDict):
    """One compilation of one frame."""

    id: Annotated[str, Bounds(pattern="^f[0-9]+$")]
    compile_id: Annotated[str, 'torch\'s own spelling, "0/1"; repeats after a reset and in every process']
    process: Annotated[Count, "index into run.processes"]
    epoch: Annotated[Count, "how many calls of torch._dynamo.reset() came before"]
    attempt: Annotated[Count, "torch's number of the last attempt, from 0"]
    attempts: Count
    call: Annotated[
        Annotated[int, Bounds(ge=1)] | None,
        "during which call in its process of what torch.compile gave it was compiled, from 1; null where that was not recorded",
    ]
    name: str | None
    file: str | None
    line: int | None
    outcome: Annotated[str, "compiled, broke (compiled up to a graph break), skipped, failed; open enum"]
    error: str | None
    graphs: Sequence[str]
    breaks: Sequence[str]
    stack: Sequence[Location]
    metrics: CompileMetrics | None
    guard_count: int | None


class GraphKeys(TypedDict):
    """One captured graph."""

    id: Annotated[str, Bounds(pattern="^g[0-9]+$")]
    frame: str
    kind: Annotated[str, "dynamo, aot_joint, aot_forward, aot_backward, aot_inference, post_grad; open enum"]
    attempt: Count
    nodes: int | None
    nodes_why: str | None
    ops: Mapping[str, Count]
    svg: Annotated[str | None, "path relative to report.json"]
    svg_why: str | None
    runnable: Annotated[bool | None, ReasonIn("why_not")]
    why_not: Annotated[str | None, "why runnable is null or false, or why nothing could be counted"]


class CouldHappenKeys(TypedDict):
    """What `dynadiag parity` tried on calls that the program did not make."""

    torch: str | None
    graphs: int
    compared: int
    findings: Annotated[int, "they appear in findings, with codes DM30 to DM36"]


class CallKeys(TypedDict):
    """One warmed-up call, looked at from inside."""

    process: Count
    function: str
    call: Annotated[Count, "the number of the call of this function, from 1"]
    operators: Count
    operators_compiled: Count
    graphs: Count
    breaks: Count
    eager_part: Annotated[bool, "a method or a submodule of a compiled module that was called by itself, which is not compiled"]


class CompiledWorkKeys(TypedDict):
    """How much of a call runs compiled."""

    operators: Count
    operators_compiled: Count
    share: Share | None
    share_why: str | None
    graphs_per_call: Annotated[tuple[Count, Count], "at least and at most"]
    breaks_per_call: Annotated[tuple[Count, Count], "at least and at most"]
    time_share: Annotated[Share | None, "with --cost: the part of the host's time of a call that is spent in graphs"]
    time_share_why: str | None
    calls: Sequence[CallKeys]


class ReportFile(TypedDict):
    """What `dynadiag explain` found. Keys are only ever added, enums are open; null means not known, with the reason in `<key>_why`."""

    schema_version: Literal[1]
    run: RunKeys
    summary: Annotated[dict[str, Any], KeysOf((Summary,), OF_SUMMARY)]
    frames: Iterable[FrameKeys]
    graphs: Iterable[GraphKeys]
    graph_breaks: Annotated[Iterable[Annotated[dict[str, Any], _BREAK]], "one per site: a line where Dynamo broke the graph"]
    recompiles: Annotated[Iterable[Recompile], "one per event"]
    fallbacks: Annotated[Iterable[Annotated[dict[str, Any], _FALLBACK]], "what ran eagerly without being asked to"]
    mutations: Iterable[Annotated[dict[str, Any], KeysOf((Mutation,), OF_MUTATIONS)]]
    findings: Annotated[Iterable[Annotated[dict[str, Any], _FINDING]], "ranked, most expensive first"]
    transitions: Annotated[
        Iterable[Annotated[dict[str, Any], _TRANSITION]],
        "recompiles of one code object, one source and its values per row",
    ]
    guards: Iterable[Annotated[dict[str, Any], _GUARDS]]
    compile_time: CompileTime
    parity: Annotated[Parity | None, "what `explain --parity` compared; null without it, with the reason in parity_why"]
    parity_why: str | None
    could_happen: Annotated[
        CouldHappenKeys | None,
        "what `dynadiag parity` tried on calls that the program did not make; null without it, with the reason in could_happen_why",
    ]
    could_happen_why: str | None
    compiled_work: Annotated[
        CompiledWorkKeys | None,
        "how much of a call runs compiled: one warmed-up call of each compiled function, looked at from inside; null where none was, "
        "with the reason in compiled_work_why",
    ]
    compiled_work_why: str | None
    ranks: Sequence[RankDifference]
    rank_groups: Annotated[
        RankComparison | None,
        "ranks grouped by what they compiled, compared by digests; null where fewer than two ranks were recorded",
    ]
    rank_groups_why: str | None
    notes: Sequence[str]
    failed_passes: Annotated[Sequence[str], "passes in which dynadiag itself failed: what they find is missing, and the counts are too low"]
    pictures: Annotated[Mapping[str, str], 'paths relative to report.json, by graph id or "frames"']
