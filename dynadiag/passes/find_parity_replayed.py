"""What `dynadiag parity` found on calls that were not recorded: it could happen, and is kept apart from what did happen."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from dynadiag.advice.parity import replay_advice
from dynadiag.facts.fingerprint import Subject, fingerprint
from dynadiag.facts.wording import frame_location, plural
from dynadiag.model import codes
from dynadiag.model.graph import Graph
from dynadiag.model.parity import CouldDiffer, Replayed
from dynadiag.model.report import Finding, PassResult
from dynadiag.model.run import Run
from dynadiag.passes.base import Priority

_LOCAL = re.compile(r"L\[(['\"])([A-Za-z_]\w*)\1\]")


def find_parity_replayed(run: Run, replayed: Replayed) -> PassResult:
    """One warning for each way to go wrong or to differ that `dynadiag parity` found when it replayed this run's graphs."""
    graphs = {graph.id: graph for graph in run.graphs}
    findings = tuple(_finding(one, graphs.get(one.graph), at, run) for at, one in enumerate(replayed.findings))
    unknown = sum(one.graph not in graphs for one in replayed.findings)
    notes = (f"parity.json names graphs that this recording does not contain ({plural(unknown, 'finding')}).",) if unknown else ()
    return PassResult(findings=findings, notes=notes)


def _finding(one: CouldDiffer, graph: Graph | None, at: int, run: Run) -> Finding:
    frame = run.frame(graph.frame) if graph is not None and graph.frame is not None else None
    where = one.line or (None if frame is None else frame_location(frame))
    more = f"; {one.others} more" if one.others else ""
    test = f" A test that shows it: {one.test}." if one.test else ""
    return Finding(
        id="",
        fingerprint=fingerprint(Subject(one.code, where, one.source or f"{one.where} {one.aspect}"), run),
        code=one.code,
        severity="warning",
        title=f"Could happen: {codes.TABLE[one.code].title if one.code in codes.TABLE else one.title}",
        where=where,
        why=(
            f"Replayed and compared with eager, {one.graph} {one.would}: {tensor_in_words(asdict(one))}{more}. It first shows in "
            f"{one.layer}.{test}"
        ),
        fix=replay_advice(one.code),
        cost=None,
        evidence=tuple(known.id for known in (graph, frame) if known is not None),
        rank=(float(Priority.LIMIT_HIT), 0.5, float(at)),
    )


def plain_source(source: str) -> str:
    """How the user writes what Dynamo calls "L['self'].cache"."""
    return _LOCAL.sub(r"\2", source)


def tensor_in_words(tensor: Mapping[str, Any]) -> str:
    """What differs, in words: "output 0: 2 of 4 elements, the first -1.06 in eager and 0.47 compiled"."""
    name = f"`{plain_source(tensor['source'])}`" if tensor["source"] else tensor["name"]
    subject = {"input": f"{name} after the call", "gradient": f"the gradient of {name}"}.get(tensor["where"], name)
    if tensor["aspect"] == "values" and tensor["elements"]:
        some = f"{tensor['wrong_elements']} of {tensor['elements']} elements"
        return f"{subject}: {some}, the first {tensor['eager']} in eager and {tensor['compiled']} compiled"
    what = {"values": "", "raises": ""}.get(tensor["aspect"], f" ({tensor['aspect'].replace('_', ' ')})")
    return f"{subject}{what}: {tensor['eager']} in eager, {tensor['compiled']} compiled"
