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
from dynadiag.model.clauses import Basis, Cause, Happened
from dynadiag.model.graph import Graph
from dynadiag.model.parity import CouldDiffer, Replayed
from dynadiag.model.report import Finding, PassResult
from dynadiag.model.run import Run
from dynadiag.passes.base import Priority

_LOCAL = re.compile(r"L\[(['\"])([A-Za-z_]\w*)\1\]")


def find_parity_replayed(run: Run, replayed: Replayed) -> PassResult:
    """One warning for each way to go wrong or to differ that `dynadiag parity` found when it replayed this run's graphs."""
    graphs = {graph.id: graph for graph in run.graphs}
    findings = tuple(_finding(could_differ, graphs.get(could_differ.graph), at, run) for at, could_differ in enumerate(replayed.findings))
    unknown = sum(finding.graph not in graphs for finding in replayed.findings)
    notes = (f"parity.json names graphs that this recording does not contain ({plural(unknown, 'finding')}).",) if unknown else ()
    return PassResult(findings=findings, notes=notes)


def _finding(could_differ: CouldDiffer, graph: Graph | None, at: int, run: Run) -> Finding:
    frame = run.frame(graph.frame) if graph is not None and graph.frame is not None else None
    where = could_differ.line or (None if frame is None else frame_location(frame))
    more = f"; {could_differ.others} more" if could_differ.others else ""
    return Finding(
        id="",
        fingerprint=fingerprint(
            Subject(could_differ.code, where, could_differ.source or f"{could_differ.where} {could_differ.aspect}"), run
        ),
        code=could_differ.code,
        severity="warning",
        title=f"Could happen: {codes.TABLE[could_differ.code].title if could_differ.code in codes.TABLE else could_differ.title}",
        where=where,
        clauses=(
            Happened(
                f"Replayed and compared with eager, {could_differ.graph} {could_differ.would}: "
                f"{tensor_in_words(asdict(could_differ))}{more}"
            ),
            Cause(f"It first shows in {could_differ.layer}"),
            *((Basis(f"A test that shows it: {could_differ.test}"),) if could_differ.test else ()),
        ),
        fix=replay_advice(could_differ.code),
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
