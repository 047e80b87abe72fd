"""What `minify` leaves behind: minify.json by its schema, the bug report, the pictures, and the closest program that does not fail."""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
import torch

from dynadiag.errors import OutputError
from dynadiag.reduce.core.failure import Failure
from dynadiag.reduce.graphs.candidate import Candidate, candidate_of
from dynadiag.reduce.graphs.guilty_part import GuiltyLayer
from dynadiag.reduce.graphs.inputs import TensorInput
from dynadiag.reduce.graphs.reduction import ConfirmedGraph, Reduction
from dynadiag.reduce.graphs.setting import Setting
from dynadiag.reduce.reproducer import ablation, bug_report, finishing
from dynadiag.reduce.reproducer import graph_outcome as outcome
from dynadiag.reduce.reproducer.ablation import Cell, ablate
from dynadiag.reduce.reproducer.graph_outcome import Written, difference, to_json, write_reproducer
from dynadiag.reduce.reproducer.proving import Proof
from dynadiag.reduce.reproducer.result_files import write_json
from dynadiag.render.html import result_page

SCHEMA = json.loads((Path(__file__).parents[3] / "docs" / "minify.schema.json").read_text())
FAILURE = Failure(
    kind="compile_error", phase="compile", exceptions=("Outer", "a.Inner"), message="<img> @user", detail="a `log` ```\n" * 3000
)
LADDER = GuiltyLayer(layer="inductor", steps={"eager": "passes"})


def graph(function, *values):
    return candidate_of(torch.fx.symbolic_trace(function), values)


def reduced(best, almost=None, *, failure=FAILURE, failed=3, of=3, backend="eager"):
    confirmed = ConfirmedGraph(failure=failure, failed=failed, of=of, wall_s=1.0, timeout_s=60.0, cpu_s=1.0)
    original = graph(lambda x: (torch.relu(torch.tanh(x) + 1),), torch.ones(2, 2))
    queries = Counter(confirm=of, cut=4, simplify=0, minimal=0)
    return Reduction(
        original=original,
        best=best,
        almost=almost,
        confirmed=confirmed,
        setting=Setting(backend=backend),
        queries=queries,
        cpu_s=2.0,
        search_cpu_s=1.0,
        search_wall_s=0.5,
        complete=True,
        other_failures={"runtime_error (call): b | c": 2},
    )


RELU = graph(lambda x: (torch.relu(x),), torch.ones(2, 2))


def test_the_json_has_the_keys_of_the_contract_and_fits_its_schema(tmp_path):
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    written = Written(path=tmp_path / "repro_min.py", proof=Proof(runs=3, reproduced=3), almost_why="none passed")
    papers = outcome.Papers(
        pictures={"before": "before.svg", "after": None}, ablation=(Cell(backend="eager", sizes="static", said="passes"),)
    )
    for found in (reduced(RELU), reduced(RELU, failed=4, of=10)):
        write_json(to_json(found, LADDER, written, wall_s=1.5, level="dynamo", papers=papers), tmp_path / "minify.json")
        data = json.loads((tmp_path / "minify.json").read_text())
        jsonschema.Draft202012Validator(SCHEMA).validate(data)
        guilty = SCHEMA["$defs"][SCHEMA["properties"]["guilty"]["$ref"].removeprefix("#/$defs/")]
        assert set(data) <= set(SCHEMA["properties"]) and set(data["guilty"]) <= set(guilty["properties"])
    assert [path.name for path in tmp_path.iterdir()] == ["minify.json"]
    assert (data["confirm_cpu_s"], data["search_cpu_s"], data["search_wall_s"]) == (1.0, 1.0, 0.5)
    assert data["flaky"]["failed"] == 4 and data["flaky"]["wrong_verdict_at_most"] == 0.01
    assert data["size_before"]["nodes"] == 5 and data["size_after"]["statements"] is None and data["size_after"]["statements_why"]


def test_the_report_and_the_pictures_are_written(tmp_path):
    (tmp_path / "repro_min.py").write_text("import torch\n# ``` a fence\n")
    written = Written(
        path=tmp_path / "repro_min.py", proof=Proof(runs=3, reproduced=2), almost=tmp_path / "almost.py", almost_differs="it lacks relu"
    )
    options = finishing.FinishOptions(command="dynadiag minify train.py")
    papers = finishing.finish(reduced(RELU, failed=4, of=10), written, tmp_path, options)
    assert (
        papers.pictures == {name: f"{name}.svg" for name in ("before", "after", "kept")} and papers.report == "report.md" and not papers.why
    )
    assert all((tmp_path / f"{name}.gv").read_text().startswith("digraph") for name in papers.pictures)
    assert ">removed<" in (tmp_path / "kept.svg").read_text() and "1 kept" in (tmp_path / "kept.svg").read_text()
    assert (tmp_path / "after.svg").read_text().startswith("<svg") and "tanh" in (tmp_path / "before.svg").read_text()
    text = (tmp_path / "report.md").read_text()
    headings = [line for line in text.splitlines() if line.startswith("#") and "fence" not in line]
    assert headings[1:] == [
        "## Describe the bug",
        "### Minimal reproducer",
        "## Error logs",
        "## Other failures seen along the way",
        "## Versions",
    ]
    assert "\\<img>" in text and "@user" not in text and "````python\nimport torch\n# ``` a fence\n````" in text
    assert "**not proven**: it failed in the same way in 2 of 3 fresh processes" in text and "it occurred in 4 of 10 runs" in text
    page = (tmp_path / "report.html").read_text()
    assert page.count("data:image/svg+xml;base64,") == 1 and ">dynadiag minify train.py</pre>" in page
    assert f"PyTorch version: {torch.__version__}" in text and len(text) < 60_000


def test_what_cannot_be_drawn_costs_only_itself(tmp_path, monkeypatch):
    monkeypatch.setattr(finishing, "_draw_all", lambda *_: 1 / 0)
    written = Written(path=None, proof=Proof(runs=0, reproduced=0), why_not="no spelling")
    papers = finishing.finish(reduced(RELU), written, tmp_path, finishing.FinishOptions())
    assert set(papers.pictures.values()) == {None} and papers.why == {"pictures": "ZeroDivisionError: division by zero"}
    assert "There is none: no spelling." in (tmp_path / "report.md").read_text()
    data = to_json(reduced(RELU), LADDER, written, wall_s=1.0, level="dynamo", papers=papers)
    jsonschema.Draft202012Validator(SCHEMA).validate(json.loads(json.dumps(data)))


def test_a_page_that_fails_costs_only_itself(tmp_path, monkeypatch):
    monkeypatch.setattr(result_page, "render", lambda told: 1 / 0)
    written = Written(path=None, proof=Proof(runs=0, reproduced=0), why_not="no spelling")
    papers = finishing.finish(reduced(RELU), written, tmp_path, finishing.FinishOptions())
    assert papers.report == "report.md" and papers.why == {"page": "ZeroDivisionError: division by zero"}
    assert not (tmp_path / "report.html").exists()


def test_what_cannot_be_written_is_one_line_and_leaves_no_half_file(tmp_path, monkeypatch):
    def full(*arguments, **keywords):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OutputError, match=r"cannot write .*minify\.json: No space left on device"):
        write_json({"some": "thing"}, tmp_path / "minify.json")
    assert list(tmp_path.iterdir()) == []


def test_the_error_of_the_page_names_no_folder_of_this_machine():
    output = 'Traceback:\n  File "/tmp/dynadiag-proof-x/empty/repro_min.py", line 7\nInner: bad'
    assert bug_report.without_folders(output) == 'Traceback:\n  File "repro_min.py", line 7\nInner: bad'


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_each_cell_of_the_table_is_run(monkeypatch):
    monkeypatch.setattr(ablation, "LAYERS", ("eager",))

    def fails_with_static_sizes(gm, inputs):
        if not any(isinstance(one, torch.SymInt) for one in inputs):
            raise ValueError("static")
        raise KeyError("dynamic")

    failure = Failure(kind="compile_error", phase="compile", exceptions=("X", "ValueError"), message="static")
    cells = ablate(RELU, Setting(backend=fails_with_static_sizes), failure, timeout_s=600)
    assert [(cell.backend, cell.sizes) for cell in cells] == [
        ("eager", "static"),
        ("eager", "dynamic"),
        ("fails_with_static_sizes", "static"),
        ("fails_with_static_sizes", "dynamic"),
    ]
    assert [cell.said for cell in cells][:3] == ["passes", "passes", "fails"] and cells[3].said.startswith("fails differently: KeyError")
    stopped = ablate(RELU, Setting(backend="eager"), failure, timeout_s=600, stop=lambda: "interrupted")
    assert {cell.said for cell in stopped} == {"not run: interrupted"}


def changed(**changes):
    recipe = TensorInput(shape=(2, 2), stride=(2, 1), dtype=torch.float32, device="cpu", requires_grad=False, fill="random")
    return Candidate(RELU.module, (replace(recipe, **changes),))


@pytest.mark.parametrize(
    ("failing", "passing", "said"),
    [
        (RELU, graph(lambda x: (x,), torch.ones(2, 2)), "it lacks relu"),
        (RELU, graph(lambda x: (torch.tanh(x),), torch.ones(2, 2)), "it has tanh instead of relu"),
        (RELU, graph(lambda x: (torch.relu(torch.relu(x)),), torch.ones(2, 2)), "it also has relu"),
        (changed(), changed(shape=(1, 2)), "input 0 has the shape (1, 2) instead of (2, 2)"),
        (changed(), changed(dtype=torch.float64), "input 0 has the dtype torch.float64 instead of torch.float32"),
        (changed(), changed(fill="zeros"), "input 0 contains zeros instead of random numbers"),
        (changed(requires_grad=True), changed(), "input 0 does not require grad"),
        (
            graph(lambda x: (torch.sum(x, 1),), torch.ones(2, 2)),
            graph(lambda x: (torch.sum(x, 0),), torch.ones(2, 2)),
            "sum is called with (x, 0) instead of (x, 1); input 0 contains different values",
        ),
        (Candidate(RELU.module, RELU.inputs, (("inductor.max_fusion_size", 1),)), RELU, "it does not set inductor.max_fusion_size"),
    ],
)
def test_how_the_neighbour_differs_is_said(failing, passing, said):
    found = difference(failing, passing)
    assert found == said or (said.endswith("different values") and found == said.split(";")[0])


def test_a_neighbour_is_written_only_when_it_passes_alone(tmp_path, monkeypatch):
    """The file has the last word; nothing that fails is ever called `almost.py`."""
    monkeypatch.setattr(outcome, "prove", lambda source, failure, timeout_s, warm, sometimes: Proof(runs=3, reproduced=3))
    found = reduced(RELU, graph(lambda x: (x + 1,), torch.ones(2, 2)))
    for status, kept in ((0, True), (1, False), (None, False)):
        monkeypatch.setattr(outcome, "run_in_child", lambda source, timeout_s, status=status: status)
        written = write_reproducer(found, LADDER, tmp_path, timeout_s=600)
        assert (written.almost is not None) is kept is (tmp_path / "almost.py").exists()
        assert (written.almost_why is None) is kept
    assert "as a file (exit status None)" in written.almost_why
    hang = replace(FAILURE, kind="hang")
    monkeypatch.setattr(outcome, "run_in_child", lambda source, timeout_s: 0)
    write_reproducer(reduced(RELU, found.almost, failure=hang), LADDER, tmp_path, timeout_s=600)
    source = (tmp_path / "almost.py").read_text()
    assert "# passes too" in source and "it hangs" not in source and "# fails" not in source
    assert "it hangs" in (tmp_path / "repro_min.py").read_text()
