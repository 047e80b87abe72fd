"""`fix.json` has the published schema, and what is printed says what was found."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import jsonschema

from dynadiag.fix.result import Changed, FixResult
from dynadiag.fix.show import document_of, headline
from dynadiag.model.location import Location
from dynadiag.model.report import Finding, Summary
from dynadiag.render import markdown_text
from dynadiag.render.page import text_of

SCHEMA = json.loads((Path(__file__).parents[3] / "docs" / "fix.schema.json").read_text())
HOSTILE = "\x1b[31m<script>[link](javascript:x)"


def summary(breaks: int) -> Summary:
    return Summary(
        frames=2, frames_compiled=2, frames_skipped=0, graphs=breaks + 1, graph_break_sites=breaks, graph_break_events=breaks, recompiles=0,
        fallbacks=0, mutations=0, compile_s=0.5,
    )  # fmt: skip


def finding(number: int, code: str, title: str = "Graph break") -> Finding:
    where = Location(file="train.py", line=number, function="step", code="if y.sum() > 0:")
    return Finding(
        id=f"n{number}", fingerprint=f"{number:016x}", code=code, severity="warning", title=title, where=where, clauses=(), fix=(),
        cost=None, evidence=(),
    )  # fmt: skip


def result(*, kept: bool, not_proven: str | None = None) -> FixResult:
    change = Changed(
        id="x1", slug="if-where", text="Compute both", places=("train.py:1",), before=("if y.sum() > 0:",),
        after=("y = torch.where(c, a, y)",),
        cures=(f"{1:016x}",), proven=kept, why=None if kept else "values differ", gives_up=None, calls=12 if kept else 0,
        runs=("the script's own data, compiled",) if kept else (),
    )  # fmt: skip
    findings = (finding(1, "GB0170"), finding(2, "GB0124", HOSTILE))
    left = {one.fingerprint: f"nothing is advised {HOSTILE}" for one in findings[1 if kept else 0 :]}
    return FixResult(
        directory="/run", root="/project", command=("train.py",), torch="2.15.0", search_backend="aot_eager",
        findings=findings, changes=(change,),
        left=left, before=summary(2), after=summary(1) if kept else None, patch="--- a\n" if kept else "",
        new_texts={}, old_texts={}, not_proven=not_proven,
        script_cpu_s=2.0, cpu_s=9.0, runs=9, no_speed="--bench was not given",
    )  # fmt: skip


def test_the_json_has_the_published_schema():
    for one in (result(kept=True), result(kept=False), result(kept=False, not_proven="it is flaky")):
        jsonschema.validate(one.to_json("0"), SCHEMA)


def test_the_headline_counts_what_is_cured():
    assert headline(result(kept=True)) == "1 of 2 findings cured and proven, 1 change; still there: 1 graph break"
    assert headline(result(kept=False)) == "0 of 2 findings cured and proven: no change is proven"
    assert headline(result(kept=False, not_proven="its results differ")) == "nothing is proven: its results differ"


def test_the_text_shows_change_proof_and_counts():
    text = text_of(document_of(result(kept=True)))
    assert "+ y = torch.where(c, a, y)" in text and "proven: 12 calls compared" in text
    assert "graph breaks 2 -> 1 (events 2 -> 1), recompiles 0 -> 0, fallbacks 0 -> 0, graphs 3 -> 2" in " ".join(text.split())
    assert "speed was not measured: --bench was not given" in text
    assert "9 runs of the script to prove it, 9 CPU seconds, 4.5 times the script's own" in text


def test_a_change_of_a_library_is_shown_with_its_place():
    one = result(kept=True)
    change = replace(one.changes[0], cures=("a site",), places=("library/blocks.py:3", "library/blocks.py:1"))
    assert "  changes library/blocks.py:3\n" in text_of(document_of(replace(one, changes=(change,))))


def test_what_others_wrote_does_nothing_to_the_terminal_or_the_page():
    assert "\x1b" not in text_of(document_of(result(kept=True)))
    page = markdown_text.document(document_of(result(kept=True)))
    assert "\x1b" not in page and "<script>" not in page.replace("\\<", "") and "[link](" not in page
