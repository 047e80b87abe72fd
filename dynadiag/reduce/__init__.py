"""`minify`: the smallest graph that fails in the same way, with any oracle. Importing this imports torch only when it is called."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dynadiag.errors import NothingFoundError, UsageError
from dynadiag.reduce.core.verdict import Verdict, as_verdict
from dynadiag.torch_compat.versions import require

if TYPE_CHECKING:
    from torch.fx import GraphModule

    from dynadiag.reduce.core.reducer import Judgement, Progress
    from dynadiag.reduce.graphs.candidate import Candidate
    from dynadiag.reduce.graphs.reduction import GraphReducer

__all__ = ["MinifyResult", "Queries", "Verdict", "minify"]

UserOracle = Callable[..., "Verdict | bool"]


class Queries(int):
    """How many queries the oracle answered; `confirm`, `cut`, `simplify` and `minimal` are its parts."""

    confirm: int
    cut: int
    simplify: int
    minimal: int

    def __new__(cls, *, confirm: int, cut: int, simplify: int, minimal: int) -> Queries:
        """The sum of the four counts."""
        made = super().__new__(cls, confirm + cut + simplify + minimal)
        made.confirm, made.cut, made.simplify, made.minimal = confirm, cut, simplify, minimal
        return made

    def __repr__(self) -> str:
        return f"Queries(confirm={self.confirm}, cut={self.cut}, simplify={self.simplify}, minimal={self.minimal})"


@dataclass(frozen=True, kw_only=True)
class MinifyResult:
    """The smallest failing graph with inputs for it (`graph_module(*inputs)`), and what it cost.

    `other_failures` are failures that were not the one looked for, with how often they occurred (a user's oracle that returns bools has
    none). `complete` is False when the search ended early; `broken_passes` holds the traceback of each pass that raised. `almost` is the
    closest graph found that does not fail, with inputs, if any.
    """

    graph_module: GraphModule
    inputs: tuple[Any, ...]
    queries: Queries
    other_failures: tuple[tuple[str, int], ...] = ()
    complete: bool = True
    broken_passes: Mapping[str, str] = field(default_factory=dict)
    almost: tuple[GraphModule, tuple[Any, ...]] | None = None


def minify(
    gm: GraphModule,
    inputs: Sequence[Any],
    *,
    oracle: UserOracle,
    simplify: bool = True,
    journal: str | PathLike[str] | None = None,
    resume: bool = False,
    query_limit: int | None = None,
    on_query: Callable[[Progress], None] | None = None,
) -> MinifyResult:
    """Find the smallest part of `gm` for which `oracle(graph_module, inputs)` still returns True or `Verdict.INTERESTING`.

    The oracle runs in this process and gets fresh copies of the inputs each time; if it raises, the candidate is invalid.
    `gm` itself is not changed. With `simplify`, operators are also bypassed, shapes shrunk, data replaced with random numbers and more;
    without it, operators are only removed. `journal` is a file of verdicts; with `resume` it is continued.

    Raises NothingFoundError if the oracle does not find `gm` itself interesting; UsageError if `gm` is not a graph, if `inputs` do not fit
    it, or if it does not run without a compiler (its intermediate values could not be computed); TorchUnsupportedError for an old torch.
    """
    require("minify")
    from dynadiag.reduce.core.journal import Journal
    from dynadiag.reduce.graphs.candidate import candidate_of
    from dynadiag.reduce.graphs.reduction import GraphReducer, reduce_fully

    _check(gm, inputs, oracle)
    original = candidate_of(gm, inputs)
    notes = Journal(None if journal is None else Path(journal), subject=original.key, resume=resume)
    reducer = GraphReducer(original, _InProcess(oracle), journal=notes, on_query=on_query, query_limit=query_limit)
    try:
        _must_be_interesting(reducer.confirm(), notes.get(original.key))
        _must_run(reducer)
        complete = reduce_fully(reducer, simplify=simplify)
    finally:
        notes.close()
    counts = {phase: reducer.progress.queries[phase] for phase in ("confirm", "cut", "simplify", "minimal")}
    module, values = _handed_out(reducer.best)
    return MinifyResult(
        graph_module=module,
        inputs=values,
        queries=Queries(**counts),
        other_failures=tuple(reducer.other_failures.most_common()),
        complete=complete,
        broken_passes=dict(reducer.broken_passes),
        almost=None if reducer.almost is None else _handed_out(reducer.almost),
    )


class _InProcess:
    """A user's oracle, called in this process; an exception of its means invalid."""

    def __init__(self, oracle: UserOracle) -> None:
        self._oracle = oracle

    def judge(self, candidate: Candidate) -> Judgement:
        """The verdict of the user's function."""
        from dynadiag.torch_compat.dispatch.state import kept_global_state

        module, values = _handed_out(candidate)
        try:
            with kept_global_state():
                return as_verdict(self._oracle(module, list(values))), ""
        except Exception as error:  # noqa: BLE001 - the border around a candidate
            return Verdict.INVALID, f"{type(error).__name__}: {error}"[:1000]

    def values(self, candidate: Candidate) -> Any:
        """The values of an eager run in this process."""
        from dynadiag.reduce.graphs.running import eager_values

        return eager_values(candidate)

    def impossible(self, candidate: Candidate) -> str | None:
        """Why the candidate cannot run, found in this process."""
        from dynadiag.reduce.graphs.running import impossible

        return impossible(candidate)


def _handed_out(candidate: Candidate) -> tuple[GraphModule, tuple[Any, ...]]:
    """A copy of the graph (an oracle may rewrite it, as compilers do) and fresh inputs."""
    from dynadiag.reduce.graphs.candidate import own_copy
    from dynadiag.reduce.graphs.inputs import make_values

    return own_copy(candidate.module), tuple(make_values(candidate.inputs))


def _must_be_interesting(verdict: Verdict, noted: Judgement | None) -> None:
    if verdict is not Verdict.INTERESTING:
        remark = f" ({noted[1]})" if noted is not None and noted[1] else ""
        raise NothingFoundError(f"the oracle calls the original graph {verdict.value}{remark}: there is nothing to reduce", exit_code=1)


def _must_run(reducer: GraphReducer) -> None:
    try:
        reducer.values()
    except Exception as error:
        said = (str(error).splitlines() or [""])[0][:300]
        raise UsageError(f"the graph does not run on these inputs without a compiler: {type(error).__name__}: {said}") from error


def _check(gm: Any, inputs: Sequence[Any], oracle: Any) -> None:
    from torch.fx import GraphModule

    if not isinstance(gm, GraphModule):
        raise UsageError(f"expected a torch.fx.GraphModule, not {type(gm).__name__}")
    if not callable(oracle):
        raise UsageError(f"the oracle must be a function of a graph and its inputs, not {type(oracle).__name__}")
    placeholders = sum(node.op == "placeholder" for node in gm.graph.nodes)
    if placeholders != len(inputs):
        raise UsageError(f"the graph takes {placeholders} inputs, but {len(inputs)} were given")
