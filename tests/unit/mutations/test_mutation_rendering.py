"""Mutations in the terminal, in Markdown and in JSON."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from rich.console import Console

from dynadiag import report
from dynadiag.model.report import Report
from dynadiag.model.run import Run, RunInfo
from dynadiag.render import json_report, markdown, terminal

SCHEMA = Path(__file__).resolve().parents[3] / "docs" / "report.schema.json"
FREE = ({"kind": "free", "basis": "derived", "detail": "kept in the graph"},)
REFUSED = ({"kind": "eager_fallback", "basis": "observed", "detail": "refused"},)
HOSTILE = "\x1b[31m[bold]</script>`|\u202e" + "A" * 3000


def with_mutations(*mutations) -> Report:
    plain = report.build(Run(info=RunInfo()), passes=())
    return replace(plain, mutations=mutations, summary=replace(plain.summary, mutations=len(mutations)))


def shown(made: Report, **options) -> str:
    out = io.StringIO()
    terminal.print_report(made, Console(file=out, width=110, color_system=None), **options)
    return out.getvalue()


def test_free_mutations_are_one_line_until_they_are_asked_for(build):
    made = with_mutations(build.mutation(0), build.mutation(1, code="DM17", effects=FREE, input="L['m'].running_mean"))
    text = shown(made)
    assert "mutations     2 (1 with a cost, 1 free). No mutation forces an eager fallback." in text
    assert "1 mutation free: 1 BatchNorm statistic (--show-free lists them)" in text
    assert "running_mean" not in text and "L['x']: no CUDA graph (predicted)" in text
    assert "running_mean" in shown(made, show_free=True)


def test_a_refusal_is_the_headline_and_quoted(build):
    made = with_mutations(build.mutation(code="DM09", effects=REFUSED, refusal="AssertionError: no", doubts=("which one",)))
    text = shown(made)
    assert "AOTAutograd refused a graph because of L['x']: the frame ran eager." in text
    assert "torch: AssertionError: no" in text and "unsure: which one" in text


def test_a_mutation_of_unknown_cost_says_why(build):
    made = with_mutations(build.mutation(effects=(), sites=(), unknown={"effects": "no metadata", "sites": "no probe"}))
    text = shown(made)
    assert "not known: no metadata" in text and "line not known (no probe)" in text


def test_mutations_only_leaves_out_other_sections(build):
    made = with_mutations(build.mutation())
    assert "Captured graphs" not in shown(made, mutations_only=True)
    assert "L['x']" in shown(made, mutations_only=True)


def test_markdown_has_a_table_and_the_fold(build):
    text = markdown.render(with_mutations(build.mutation(0), build.mutation(1, effects=FREE, code="DM01")))
    assert "Mutations (1)" in text and "`L['x']`" in text
    assert "1 mutation free" in text


def test_json_follows_the_schema_and_gives_reasons(build):
    unknown = {"bytes_touched": "not probed", "effects": "no metadata"}
    made = with_mutations(build.mutation(effects=(), bytes_touched=None, unknown=unknown), build.mutation(1))
    document = json.loads(json_report.dumps(made))
    jsonschema.validate(document, json.loads(SCHEMA.read_text(encoding="utf-8")))
    first = document["mutations"][0]
    assert (first["bytes_touched"], first["bytes_touched_why"], first["effects_why"]) == (None, "not probed", "no metadata")
    assert (first["static_why"], "unknown" in first) == (None, False)


@pytest.mark.parametrize("field", ["input", "code", "kind", "refusal"])
def test_hostile_text_stays_text(build, field):
    made = with_mutations(
        build.mutation(**{field: HOSTILE}),
        build.mutation(1, doubts=(HOSTILE,), effects=({"kind": HOSTILE, "basis": HOSTILE, "detail": HOSTILE},)),
    )
    for text in (shown(made), markdown.render(made)):
        assert "\x1b" not in text and "\u202e" not in text
    assert max(map(len, shown(made).splitlines())) <= 110
