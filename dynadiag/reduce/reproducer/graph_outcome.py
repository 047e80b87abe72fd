"""`minify.json`, `repro_min.py` and `almost.py` of a finished reduction."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import dynadiag
from dynadiag.children.answer_cache import digest, remembered
from dynadiag.errors import NotRebuildableError
from dynadiag.reduce.core.failure import shows
from dynadiag.reduce.core.verdict import WRONG_VERDICT
from dynadiag.reduce.graphs.candidate import CALLS, Candidate, graphs_in
from dynadiag.reduce.graphs.guilty_part import GuiltyLayer
from dynadiag.reduce.graphs.inputs import Input, TensorInput
from dynadiag.reduce.graphs.observing import calls_of
from dynadiag.reduce.graphs.reduction import Reduction
from dynadiag.reduce.reproducer.ablation import Cell
from dynadiag.reduce.reproducer.graph_file import Header, reproducer
from dynadiag.reduce.reproducer.minify_keys import GraphResultKeys, GuiltyKeys, PapersKeys, SizeKeys
from dynadiag.reduce.reproducer.proving import (
    Proof,
    prove,
    proven_with_variables,
    run_fresh,
    run_in_child,
    template_for,
    with_variables,
    without_header,
)
from dynadiag.reduce.reproducer.result_files import WARM, common_json, no_almost, versions, write_almost, write_text


def difference(failing: Candidate, passing: Candidate) -> str:
    """How the passing graph differs from the failing one, such as "it lacks relu" or "input 0 has the shape (1,) instead of (2,)"."""
    found = list(_differences(failing, passing))
    return "; ".join(found) if found else "it differs in how its values are connected"


def _differences(failing: Candidate, passing: Candidate) -> Iterator[str]:
    ours, theirs = Counter(_operators(failing)), Counter(_operators(passing))
    lacks, has = sorted((ours - theirs).elements()), sorted((theirs - ours).elements())
    if lacks and has:
        yield f"it has {_listed(has)} instead of {_listed(lacks)}"
    elif lacks or has:
        yield f"it lacks {_listed(lacks)}" if lacks else f"it also has {_listed(has)}"
    elif (changed := _changed_arguments(failing, passing)) is not None:
        yield changed
    if not lacks and not has and (item := _results(failing)) != (other := _results(passing)):
        yield f"it returns {_counted(other, 'value')} instead of {item}"
    if len(failing.calls) != len(passing.calls):
        yield f"it is called {_counted(len(passing.calls), 'time')} instead of {len(failing.calls)}"
    elif len(failing.inputs) == len(passing.inputs):
        for number, (one_call, other_call) in enumerate(zip(failing.calls, passing.calls, strict=True)):
            where = f" of call {number + 1}" if len(failing.calls) > 1 else ""
            for position, (one_input, other_input) in enumerate(zip(one_call.inputs, other_call.inputs, strict=True)):
                yield from (f"input {position}{where} {text}" for text in _input(one_input, other_input))
    elif not lacks and not has:
        yield f"it has {_counted(len(passing.inputs), 'input')} instead of {len(failing.inputs)}"
    gone = [name for name, _ in failing.configs if name not in dict(passing.configs)]
    if gone:
        yield f"it does not set {_listed(gone)}"


def _operators(candidate: Candidate) -> list[str]:
    nodes = [node for module in graphs_in(candidate.module) for node in module.graph.nodes]
    return [_name(node.target) for node in nodes if node.op in CALLS]


def _name(target: object) -> str:
    return target if isinstance(target, str) else str(getattr(target, "__name__", target))


def _listed(names: list[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" + ("" if count == 1 else "s")


def _changed_arguments(failing: Candidate, passing: Candidate) -> str | None:
    """The first operator that is called in another way; None when all are called alike."""
    ones, others = ([node for node in candidate.module.graph.nodes if node.op in CALLS] for candidate in (failing, passing))
    for item, other in zip(ones, others, strict=False):
        if (repr(item.args), repr(item.kwargs)) != (repr(other.args), repr(other.kwargs)):
            return f"{_name(other.target)} is called with {_call(other)} instead of {_call(item)}"
    return None


def _call(node: object) -> str:
    args, kwargs = getattr(node, "args", ()), getattr(node, "kwargs", {})
    text = ", ".join([*map(repr, args), *(f"{name}={value!r}" for name, value in kwargs.items())])
    return f"({text})" if len(text) <= 120 else f"({text[:117]}...)"


def _results(candidate: Candidate) -> int:
    (output,) = [node for node in candidate.module.graph.nodes if node.op == "output"] or [None]
    result = output.args[0] if output is not None else ()
    return len(result) if isinstance(result, tuple | list) else 1


def _input(tensor_input: Input, other: Input) -> Iterator[str]:
    if not isinstance(tensor_input, TensorInput) or not isinstance(other, TensorInput):
        if tensor_input.key() != other.key():
            yield "has a different value"
        return
    for what in ("shape", "stride", "dtype", "device"):
        before, after = getattr(tensor_input, what), getattr(other, what)
        if before != after and not (what == "stride" and tensor_input.shape != other.shape):
            yield f"has the {what} {after} instead of {before}"
    if tensor_input.requires_grad and other.requires_grad and tensor_input.leaf != other.leaf:
        yield "is a leaf" if other.leaf else "is computed from another tensor"
    if tensor_input.requires_grad != other.requires_grad:
        yield "requires grad" if other.requires_grad else "does not require grad"
    if (tensor_input.fill, tensor_input.high) != (other.fill, other.high) or (
        tensor_input.fill == "data" and tensor_input.token != other.token
    ):
        yield (
            f"contains {_FILLS[other.fill]} instead of {_FILLS[tensor_input.fill]}"
            if tensor_input.fill != other.fill
            else "contains different values"
        )


_FILLS = {"data": "the real values", "random": "random numbers", "ones": "ones", "zeros": "zeros"}


@dataclass(frozen=True, kw_only=True)
class Written:
    """The reproducer and its proof; `why_not` says why there is none. `almost` passed as a file in a child, `almost_differs` says how it
    differs from the reproducer; `almost_why` says why there is none. `variables` are those of the environment that the file sets.
    """

    path: Path | None
    proof: Proof
    why_not: str | None = None
    almost: Path | None = None
    almost_differs: str | None = None
    almost_why: str | None = None
    variables: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Papers:
    """What comes with the reproducer: names of the pictures, the table of layers, the name of the page; `why` for what is missing."""

    pictures: Mapping[str, str | None] = field(default_factory=dict)
    ablation: Sequence[Cell] = ()
    report: str | None = None
    why: Mapping[str, str] = field(default_factory=dict)


def write_reproducer(
    reduction: Reduction, guilty: GuiltyLayer, out: Path, *, timeout_s: float, level: str = "dynamo", runs: int | None = None
) -> Written:
    """Write and prove the reproducer; `almost.py` is the closest graph that passes. With fewer `runs` that is not tried,
    and with none the file is only written.
    """
    header = Header(
        failure=reduction.confirmed.failure,
        made_by=f"Made by dynadiag {dynadiag.__version__} (minify, {level} level) on {time.strftime('%Y-%m-%d')}",
        versions=versions(),
        story=_story(reduction, guilty),
    )
    try:
        source = reproducer(reduction.best, reduction.setting, header)
    except NotRebuildableError as error:
        why = f"it cannot be written as a script: {error}"
        return Written(path=None, proof=Proof(runs=0, reproduced=0), why_not=why, almost_why="there is no reproducer")
    path = out / "repro_min.py"
    write_text(source, path)
    failure, warm = reduction.confirmed.failure, out / WARM
    if runs == 0:
        return Written(path=path, proof=Proof(runs=0, reproduced=0), almost_why="not tried yet")

    def fails(text: str, variables: Mapping[str, str]) -> bool:
        how = template_for(text, failure, variables)
        return shows(failure, *run_fresh(text, timeout_s=timeout_s, warm=warm, variables=variables, template=how))

    def proven(text: str) -> Proof:
        if runs is None:
            return prove(text, failure, timeout_s=timeout_s, warm=warm, sometimes=reduction.confirmed.failed < reduction.confirmed.of)
        return prove(text, failure, timeout_s=timeout_s, warm=warm, runs=runs)

    source, proof, variables = proven_with_variables(source, proven, fails)
    write_text(source, path)
    if runs is not None:
        return Written(path=path, proof=proof, variables=tuple(variables), almost_why="not tried yet")
    return replace(_with_almost(reduction, header, out, timeout_s, variables), path=path, proof=proof, variables=tuple(variables))


def _with_almost(reduction: Reduction, header: Header, out: Path, timeout_s: float, variables: Mapping[str, str]) -> Written:
    """`almost.py`, kept only when its file passes in a child of its own: as often as a flaky failure needs to show itself."""
    none = Written(path=None, proof=Proof(runs=0, reproduced=0))
    if (why := no_almost(reduction, out)) is not None or reduction.almost is None:
        return replace(none, almost_why=why)
    try:
        source = with_variables(reproducer(reduction.almost, reduction.setting, header, expect_failure=False), variables)
    except NotRebuildableError as error:
        return replace(none, almost_why=f"it cannot be written as a script: {error}")

    def exit_status() -> int | None:
        key = f"almost {digest(without_header(source))}"
        status: int | None = remembered(key, lambda: run_in_child(source, timeout_s=timeout_s), keep=lambda answer: answer == 0)
        return status

    otherwise = "the closest passing graph did not pass as a file"
    if (why := write_almost(source, out, exit_status, repeats=reduction.confirmed.repeats, otherwise=otherwise)) is not None:
        return replace(none, almost_why=why)
    return replace(none, almost=out / "almost.py", almost_differs=difference(reduction.best, reduction.almost))


def _story(reduction: Reduction, guilty: GuiltyLayer) -> str:
    steps = ", ".join(f"{name} {said.split(':')[0]}" for name, said in guilty.steps.items())
    claims = "".join(f" {claim[0].upper()}{claim[1:]}." for claim in claims_of(guilty))
    part = f" The failure of the program: {reduction.asked.title()}, {reduction.asked.when()}." if reduction.asked is not None else ""
    return f"{story_of(reduction)}{part} Guilty layer: {guilty.layer} ({steps}).{claims}"


def claims_of(guilty: GuiltyLayer) -> tuple[str, ...]:
    """What was tested to make the failure go away, a sentence each."""
    return tuple(cure.claim() for cure in guilty.guilt.cures) if guilty.guilt is not None else ()


def story_of(reduction: Reduction) -> str:
    """How far the graph was reduced, in one sentence."""
    queries = sum(reduction.queries.values())
    ended = "" if reduction.complete else " (interrupted: the best result so far)"
    count = len(calls_of(reduction.best, reduction.setting))
    inputs = "after calls with different inputs" if reduction.best.earlier else "each time with fresh inputs"
    calls = f" It fails when it is called {count} times, {inputs}." if count > 1 else ""
    return f"From {reduction.original.nodes} nodes to {reduction.best.nodes} in {queries} queries{ended}.{calls}"


def flaky_note(reduction: Reduction) -> str | None:
    """What a reader must know of a failure that does not always come; None when it came in every run."""
    confirmed = reduction.confirmed
    if confirmed.failed == confirmed.of:
        return None
    repeats = confirmed.repeats
    chance = f"a candidate that fails as often as the original is mistaken for a passing one in less than {WRONG_VERDICT:.0%} of cases"
    return (
        f"The failure is flaky: it occurred in {confirmed.failed} of {confirmed.of} runs. With up to {repeats} runs per candidate, "
        f"{chance}."
    )


def to_json(
    reduction: Reduction,
    guilty: GuiltyLayer,
    written: Written,
    *,
    wall_s: float,
    level: str,
    level_why: str | None = None,
    papers: Papers | None = None,
) -> GraphResultKeys:
    """The content of `minify.json` (docs/minify.schema.json); its keys are a contract. What is null has its reason in `<key>_why`."""
    failure = reduction.asked or reduction.confirmed.failure
    return {
        **common_json(reduction, failure, written.proof, wall_s=wall_s),
        "level": level,
        "level_why": level_why,
        "size_before": _size(reduction.original.nodes, None),
        "size_after": _size(reduction.best.nodes, len(calls_of(reduction.best, reduction.setting))),
        "guilty": _guilty(reduction, guilty),
        "confirm_cpu_s": round(reduction.confirmed.cpu_s, 2),
        "search_wall_s": round(reduction.search_wall_s, 2),
        "reproducer": written.path.name if written.path is not None else None,
        "why_not": written.why_not,
        "variables": list(written.variables),
        "almost": written.almost.name if written.almost is not None else None,
        "almost_why": written.almost_why,
        "almost_differs": written.almost_differs,
        **_papers(papers or Papers()),
    }


def _size(nodes: int, calls: int | None) -> SizeKeys:
    """A graph was reduced, not the statements of a script; how often that called it is not counted."""
    size: SizeKeys = {"nodes": nodes, "statements": None, "calls": calls, "statements_why": _NOT_REDUCED}
    return size if calls is not None else {**size, "calls_why": _NOT_COUNTED}


_NOT_REDUCED = "only a graph was reduced"
_NOT_COUNTED = "the calls of the script are not counted"


def _guilty(reduction: Reduction, guilty: GuiltyLayer) -> GuiltyKeys:
    guilt = guilty.guilt
    part, option = (guilt.part, guilt.option) if guilt is not None else (None, None)
    why_not = "not looked for" if guilt is None else "nothing tried made the failure go away every time"
    return {
        "layer": guilty.layer,
        "steps": dict(guilty.steps),
        "pass": part.what if part is not None else None,
        "pass_why": part.claim() if part is not None else why_not,
        "config": option.option if option is not None else None,
        "config_why": option.claim() if option is not None else why_not,
        "needs": [name for name, _ in reduction.best.configs],
        "queries": guilt.queries if guilt is not None else 0,
    }


def _papers(papers: Papers) -> PapersKeys:
    return {
        "pictures": {"before": papers.pictures.get("before"), "after": papers.pictures.get("after"), "kept": papers.pictures.get("kept")},
        "pictures_why": papers.why.get("pictures"),
        "report": papers.report,
        "report_why": papers.why.get("report"),
        "ablation": [{"backend": cell.backend, "sizes": cell.sizes, "said": cell.said} for cell in papers.ablation],
    }
