"""The objects of `minify.json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, NotRequired, TypedDict

from dynadiag.model.json_keys import NO_REASON, Bounds, Count, ReasonIn

_Seconds = Annotated[float, Bounds(ge=0)]


class SignatureKeys(TypedDict):
    """What is compared to decide whether another failure is the same."""

    kind: str
    phase: str
    exceptions: Sequence[str]
    message: Annotated[str, "normalised: without numbers, paths and node names"]
    frames: Sequence[str]


class SizeKeys(TypedDict):
    """How large a graph or a script is."""

    nodes: Annotated[Count | None, "`len(gm.graph.nodes)`; null where a script was reduced"]
    nodes_why: NotRequired[str]
    statements: int | None
    calls: int | None
    statements_why: NotRequired[str]
    calls_why: NotRequired[str]


GuiltyKeys = TypedDict(
    "GuiltyKeys",
    {
        "layer": str | None,
        "steps": Mapping[str, str],
        "pass": Annotated[str | None, "without it, the failure never occurred"],
        "pass_why": str,
        "config": Annotated[str | None, "with it, the failure never occurred"],
        "config_why": str,
        "needs": Annotated[Sequence[str], "options that the result still sets"],
        "queries": Count,
    },
)
GuiltyKeys.__doc__ = "The layer of the compiler that shows the failure first; pass and config where they were bisected."


class QueriesKeys(TypedDict):
    """How many candidates were tried, by phase."""

    confirm: Count
    cut: Count
    simplify: Count
    minimal: Count


class ProvenKeys(TypedDict):
    """Fresh processes, each in an empty directory."""

    runs: Count
    reproduced: Count


class FlakyKeys(TypedDict):
    """How often the failure occurred, where it did not in every run."""

    failed: Count
    of: Count
    repeats: Annotated[Count, "number of runs after which a candidate counts as passing"]
    wrong_verdict_at_most: Annotated[float, Bounds(ge=0)]


class OtherFailureKeys(TypedDict):
    """Another failure that was seen along the way."""

    text: str
    times: Count


class PicturesKeys(TypedDict):
    """Pictures of the graph, by name."""

    before: str | None
    after: str | None
    kept: str | None


class AblationKeys(TypedDict):
    """One back end that the reproducer was tried with."""

    backend: str
    sizes: Annotated[str, "static or dynamic"]
    said: Annotated[str, "fails, passes, fails differently: ..., not run: ..."]


class CommonKeys(TypedDict):
    """What does not depend on what was reduced."""

    schema_version: Literal[1]
    dynadiag: str
    kind: Annotated[
        str,
        "compile_error, runtime_error, crash, hang, oom, wrong_result, wrong_gradient, wrong_mutation, nan, graph_break, recompile, "
        "fallback, cudagraph_skip, wrong_call, ...: an open list",
    ]
    signature: Annotated[Mapping[str, object], SignatureKeys]
    error: Annotated[str, "the whole text of the failure"]
    queries: Annotated[Mapping[str, int], QueriesKeys]
    cpu_s: Annotated[_Seconds, "CPU seconds of the command with all its processes: the runs of the script, the queries, the proofs"]
    search_cpu_s: Annotated[_Seconds, "CPU seconds from the confirmation to the smallest graph or script, among `cpu_s`"]
    wall_s: _Seconds
    complete: Annotated[bool, "false when the search was interrupted"]
    proven: ProvenKeys
    flaky: FlakyKeys | None
    other_failures: Sequence[OtherFailureKeys]
    broken_passes: Annotated[Mapping[str, str], "tracebacks of reduction passes that raised, by their names"]
    versions: str


class PapersKeys(TypedDict):
    """The files for people."""

    pictures: PicturesKeys
    pictures_why: str | None
    report: Annotated[str | None, NO_REASON]
    report_why: str | None
    ablation: Sequence[AblationKeys]


class ResultKeys(CommonKeys, PapersKeys):
    """What was reduced, to what, and which files there are."""

    level: Annotated[str, "script, calls, dynamo, aot, ...: an open list"]
    level_why: Annotated[str | None, "why the result is at this level; null where a graph was asked for"]
    size_before: SizeKeys
    size_after: SizeKeys
    guilty: GuiltyKeys
    reproducer: Annotated[str | None, "the name of a file next to this one; null with the reason in `why_not`", ReasonIn("why_not")]
    why_not: str | None
    variables: Annotated[Sequence[str], "names of variables of the user's environment that the failure needs, which the reproducer sets"]
    almost: Annotated[
        str | None, "the closest program found that does not fail; its file also passed, in a child process of the reducer", NO_REASON
    ]
    almost_why: str | None
    almost_differs: Annotated[str | None, "how it differs from the reproducer, in words"]


class GraphResultKeys(ResultKeys):
    """The result of reducing a graph."""

    confirm_cpu_s: float
    search_wall_s: float


class ScriptResultKeys(ResultKeys):
    """The result of reducing a script."""

    left_out: Sequence[str]


class MinifyFile(ResultKeys):
    """The result of `dynadiag minify`. Keys are only ever added, lists of names are open; null means not known or none, with the reason in
    `<key>_why`.
    """

    confirm_cpu_s: NotRequired[Annotated[_Seconds, "CPU seconds of the runs that confirmed the failure of a graph, among `cpu_s`"]]
    search_wall_s: NotRequired[Annotated[_Seconds, "wall seconds of the search, of graphs alone"]]
    left_out: NotRequired[
        Annotated[
            Sequence[str],
            "statements of a script that were removed first, because candidates must not affect anything outside their own folder",
        ]
    ]
    ready_cpu_s: NotRequired[
        Annotated[
            _Seconds,
            "CPU seconds of the process that reduces a graph before its first query: imports and warm-up, including the compilers that it "
            "started",
        ]
    ]
    server_cpu_s: NotRequired[_Seconds]
    not_inlined: NotRequired[Annotated[Sequence[str], "modules next to a script that could not be inlined into it, with the reason"]]
    questions_cpu_s: NotRequired[Annotated[_Seconds, "CPU seconds of the queries: the confirmation, the search and the guilty part"]]
