"""`minify.json`, `repro_min.py` and `almost.py` of a finished reduction."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import dynadiag
from dynadiag.children.answer_cache import digest, remembered
from dynadiag.errors import NotRebuildableError
from dynadiag.reduce.core.failure import shows
from dynadiag.reduce.core.flakiness import WRONG_VERDICT
from dynadiag.reduce.graphs.backend_bisect import GuiltyLayer
from dynadiag.reduce.graphs.observing import calls_of
from dynadiag.reduce.graphs.reduction import Reduction
from dynadiag.reduce.reproducer.ablation import Cell
from dynadiag.reduce.reproducer.graph_file import Header, reproducer
from dynadiag.reduce.reproducer.near_miss import difference
from dynadiag.reduce.reproducer.needed_variables import proven_with_variables, with_variables
from dynadiag.reduce.reproducer.proving import Proof, prove, run_fresh, run_in_child, template_for, without_header
from dynadiag.reduce.reproducer.result_files import WARM, common_json, versions, write_text


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
    (out / "almost.py").unlink(missing_ok=True)
    if reduction.almost is None:
        return replace(none, almost_why="no candidate near the result passed")
    try:
        source = with_variables(reproducer(reduction.almost, reduction.setting, header, expect_failure=False), variables)
    except NotRebuildableError as error:
        return replace(none, almost_why=f"it cannot be written as a script: {error}")
    for _ in range(reduction.confirmed.repeats):
        key = f"almost {digest(without_header(source))}"
        status = remembered(key, lambda: run_in_child(source, timeout_s=timeout_s), keep=lambda answer: answer == 0)
        if status != 0:
            return replace(none, almost_why=f"the closest passing graph did not pass as a file (exit status {status})")
    write_text(source, out / "almost.py")
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
) -> dict[str, Any]:
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


def _size(nodes: int, calls: int | None) -> dict[str, Any]:
    """A graph was reduced, not the statements of a script; how often that called it is not counted."""
    size = {"nodes": nodes, "statements": None, "calls": calls, "statements_why": _NOT_REDUCED}
    return size if calls is not None else size | {"calls_why": _NOT_COUNTED}


_NOT_REDUCED = "only a graph was reduced"
_NOT_COUNTED = "the calls of the script are not counted"


def _guilty(reduction: Reduction, guilty: GuiltyLayer) -> dict[str, Any]:
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


def _papers(papers: Papers) -> dict[str, Any]:
    return {
        "pictures": {name: papers.pictures.get(name) for name in ("before", "after", "kept")},
        "pictures_why": papers.why.get("pictures"),
        "report": papers.report,
        "report_why": papers.why.get("report"),
        "ablation": [{"backend": cell.backend, "sizes": cell.sizes, "said": cell.said} for cell in papers.ablation],
    }
