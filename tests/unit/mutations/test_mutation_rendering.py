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
from dynadiag.model.graph import Graph
from dynadiag.model.report import Advice, Report
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
    assert "1 mutation free: 1 BatchNorm statistic (--show-free lists them, as report.json does)" in text
    assert "running_mean" not in text and "x: no CUDA graph (predicted)" in text
    assert "running_mean" in shown(made, show_free=True)


def test_a_refusal_is_the_headline_and_quoted(build):
    made = with_mutations(build.mutation(code="DM09", effects=REFUSED, refusal="AssertionError: no", doubts=("which one",)))
    text = shown(made)
    assert "AOTAutograd refused a graph because of x: the frame ran eagerly." in text
    assert "torch: AssertionError: no" in text and "uncertain: which one" in text


def test_a_mutation_that_is_an_error_is_not_called_harmless(build):
    error = ({"kind": "error", "basis": "observed", "detail": "autograd refuses this, also without torch.compile"},)
    text = shown(with_mutations(build.mutation(0), build.mutation(1, code="DM23", effects=error, input="L['h']")))
    assert "The mutation of h ends in an error; none forces an eager fallback." in text
    assert "No mutation forces" not in text


def test_a_mutation_of_unknown_cost_says_why(build):
    made = with_mutations(build.mutation(effects=(), sites=(), unknown={"effects": "no metadata", "sites": "no probe"}))
    text = shown(made)
    assert "not known: no metadata" in text and "line not known (no probe)" in text


def test_mutations_only_leaves_out_other_sections(build):
    made = with_mutations(build.mutation())
    assert "Captured graphs" not in shown(made, mutations_only=True)
    assert "DM02 x: " in shown(made, mutations_only=True)


def test_a_fix_whose_finding_is_left_out_stands_with_the_mutation(build):
    recompiles = ({"kind": "recompile", "basis": "observed", "detail": "a guard failed"},)
    advice = (Advice(slug="state-in-a-tensor", text="Keep the counter in a tensor."),)
    made = with_mutations(build.mutation(code="DM11", effects=recompiles, advice=advice))
    assert "fix: Keep the counter in a tensor." in shown(made, mutations_only=True)
    assert "Keep the counter" not in shown(made)


def test_keys_of_an_optimizers_state_are_shortened(build):
    outer = "L['self'].state[list(dict.keys(L['self'].state))[0]]"
    made = with_mutations(build.mutation(code="DM16", graph="g0", effects=FREE, input=f"{outer}[list(dict.keys({outer}))[2]]"))
    assert "self.state[key 0][key 2]: free" in shown(made, show_free=True)


def test_what_torch_keeps_dynamo_out_of_is_not_folded_as_harmless(build):
    broken = ({"kind": "graph_break", "basis": "observed", "detail": "Dynamo cannot trace this write"},)
    kept_out = build.mutation(0, code="DM16", effects=broken, graph=None, input="what an optimizer's step writes")
    in_step = build.mutation(1, code="DM16", effects=broken, graph="g0")
    text = shown(with_mutations(kept_out, in_step))
    assert "2 (1 with a cost, 1 free)" in text and "what an optimizer's step writes: graph break (observed)" in text


def test_markdown_has_a_table_and_the_fold(build):
    text = markdown.render(with_mutations(build.mutation(0), build.mutation(1, effects=FREE, code="DM01")))
    assert "Mutations (1)" in text and "`x`" in text
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


def test_a_captured_graph_that_was_not_kept_is_no_contradiction():
    graph = Graph(id="g0", frame="f0", kind="dynamo", attempt=0, nodes=3, ops={}, text=None)
    plain = report.build(Run(info=RunInfo(), graphs=(graph,)), passes=())
    assert "graphs        0 compiled (1 captured)" in shown(plain)
    assert "0 compiled (1 captured)" in markdown.render(plain)
