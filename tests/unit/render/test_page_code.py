"""Texts in a page: coloured, cut at source lines, and all forms of a graph beside each other."""

import base64
import json
from dataclasses import replace
from html import unescape

import pytest

from dynadiag.model.location import PayloadRef
from dynadiag.render.html import code, graphs
from dynadiag.trace import read_payload
from tests.unit.render.page_samples import CODE, DYNAMO, rich_report

AT = {("/home/me/proj/train.py", 41): "0-41", ("/home/me/proj/train.py", 23): "0-23"}


def test_a_graph_is_cut_where_its_comments_name_another_line():
    parts = list(code.graph_text(DYNAMO, AT, 10_000))
    assert [row for row, _ in parts] == [None, "0-41", "0-23"]
    assert "torch._C._nn.linear" in parts[1][1] and '<span class="c"># File:' in parts[1][1]


def test_output_code_is_lit_where_its_comments_name_nodes_of_the_graph():
    names = code.rows_of_names(DYNAMO, AT, 10_000)
    assert names == {"y": "0-41", "z": "0-23"}
    parts = list(code.output_code(CODE, names, 10_000))
    assert [row for row, _ in parts] == [None, "0-41 0-23", None]
    assert "cpp_fused_0(buf0)" in parts[1][1]


@pytest.mark.parametrize(
    "text", ["<script>x</script>\n'''<b>\n&amp;", "f'{" * 3000, '"""' * 5000, "\\\n" * 2000, "\t\0\x1b[31m\n\ud800<i>", ""]
)
def test_any_text_stays_text(text):
    made = "".join(part for _, part in code.graph_text(text, {}, 60_000))
    bare = made.replace("</span>", "")
    for name in ("k", "s", "c", "nf", "mi"):
        bare = bare.replace(f'<span class="{name}">', "")
    assert "<" not in bare and unescape(bare) == code.clean_block(text, limit=60_000, lines=20_000)


def test_the_forms_of_a_graph_stand_side_by_side(tmp_path):
    report = rich_report(tmp_path)
    assert read_payload(report.run.listings[0].text) == CODE
    (first, *_), notes = graphs.graphs(report, AT, None)
    assert [form["title"] for form in first["forms"]] == ["Dynamo (g0)", "Inductor's output code of 0_forward (o0)"]
    assert first["left"] == ["g2"]
    assert any("`dynadiag graph RUN ID --text` prints each" in note for note in notes)


def test_each_attempt_of_a_compilation_has_its_own_forms(tmp_path):
    report = rich_report(tmp_path)
    again = replace(report.run.graphs[0], id="g8", attempt=1)
    lowered = [
        replace(again, id=name, kind=kind, attempt=attempt) for name, kind, attempt in (("g7", "aot_inference", 0), ("g9", "post_grad", 1))
    ]
    frames = (replace(report.run.frames[0], attempts=2), *report.run.frames[1:])
    run = replace(report.run, frames=frames, graphs=(*report.run.graphs, again, *lowered), listings=())
    made = {one["id"]: one for one in graphs.graphs(replace(report, run=run), AT, None)[0]}
    assert [form["title"] for form in made["g0"]["forms"]] == ["Dynamo (g0)", "AOTAutograd (g7)"]
    assert [form["title"] for form in made["g8"]["forms"]] == ["Dynamo (g8)", "post-grad (g9)"]
    assert made["g0"]["said"].endswith("; thrown away: Dynamo started over") and "thrown away" not in made["g8"]["said"]


def test_what_a_library_did_is_lit_with_the_own_lines_that_called_it(tmp_path):
    report = rich_report(tmp_path)
    stack = (
        '  File "/home/me/proj/train.py", line 41, in train_step\n    y = self.model(x)\n'
        '  File "/opt/lib/model.py", line 7, in forward\n    return f(x)\n'
    )
    (tmp_path / "details").write_text("\t" + json.dumps({"strings": [stack], "nodes": [["y", None, 0]]}) + "\n")
    (tmp_path / "text").write_text(
        "\tclass G(M):\n\t    def forward(self):\n\t        # File: /opt/lib/model.py:7 in forward, code: f\n\t        y = f()\n"
    )
    graph, *rest = report.run.graphs
    refs = [PayloadRef(str(tmp_path / name), 0, (tmp_path / name).stat().st_size) for name in ("details", "text")]
    lowered = replace(graph, id="g9", kind="aot_inference", details=None, text=refs[1])
    run = replace(report.run, graphs=(replace(graph, details=refs[0], text=refs[1]), *rest, lowered), listings=())
    (first, *_), _ = graphs.graphs(replace(report, run=run), AT, None)
    forms = [form for form in first["forms"] if form["id"] in ("text-g0", "text-g9")]
    assert len(forms) == 2 and all([at for at, _ in form["parts"]] == [None, "0-41"] for form in forms)


def test_graphs_far_from_a_finding_are_drawn_for_the_page_as_long_as_there_is_room(tmp_path, monkeypatch):
    (first, *_), notes = graphs.graphs(rich_report(tmp_path), AT, None)
    (picture,) = first["pictures"]
    assert b"captured by Dynamo" in base64.b64decode(picture["source"].partition(",")[2])
    for name, value in (("DRAWN_BYTES", 20), ("DRAWN_AT_MOST", 0)):
        with monkeypatch.context() as patch:
            patch.setattr(graphs, name, value)
            (first, *_), fewer = graphs.graphs(rich_report(tmp_path), AT, None)
        assert first["pictures"] == [] and notes[0] != fewer[0]


def test_without_room_the_page_says_which_texts_it_lacks(tmp_path, monkeypatch):
    monkeypatch.setattr(graphs, "TEXT_BYTES", len(DYNAMO) + 300)
    (first, *_), _ = graphs.graphs(rich_report(tmp_path), AT, None)
    assert [form["title"] for form in first["forms"]] == ["Dynamo (g0)"] and first["left"] == ["o0", "g2"]


def test_colour_is_bounded_apart_from_the_text(tmp_path, monkeypatch):
    monkeypatch.setattr(graphs, "COLOURED_BYTES", len(DYNAMO))
    (first, *_), _ = graphs.graphs(rich_report(tmp_path), AT, None)
    dynamo, code = ("".join(part for _, part in form["parts"]) for form in first["forms"])
    assert "<span" in dynamo and "<span" not in code and "1 &lt; 2" in code


def test_a_text_that_is_cut_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(graphs, "_LONGEST_TEXT", 60)
    (first, *_), _ = graphs.graphs(rich_report(tmp_path), AT, None)
    assert first["forms"][0]["cut"].startswith(f"The first 60 of {len(DYNAMO):,} characters")


def test_of_long_output_code_kernels_are_left_out_and_what_calls_them_stays():
    kernels, calls = (
        "kernel = compile('x')\n" * 90,
        "async_compile.wait(globals())\ndef call(args):\n    # Source Nodes: [y]\n    kernel(a)\n",
    )
    text = graphs._without_middle(f"import torch\n{kernels}{calls}", 400)
    assert len(text) <= 400 and text.startswith("import torch\nkernel = ") and text.endswith(calls) and "kernels are left out here" in text
    more = "    more\n" * 90
    cut = graphs._without_middle(f"{kernels}{calls}{more}", 400)
    assert len(cut) <= 400 and "def call(args):" in cut and cut.startswith("kernel = ")
    assert graphs._without_middle(kernels + calls, 4000) == kernels + calls and graphs._without_middle(kernels, 400) == kernels


def test_a_line_with_thousands_of_inputs_leaves_room_for_the_operators(tmp_path, monkeypatch):
    monkeypatch.setattr(graphs, "_LONGEST_TEXT", len(DYNAMO) - 60)
    monkeypatch.setattr(graphs, "_LONGEST_LINE", 30)
    (first, *_), _ = graphs.graphs(rich_report(tmp_path), AT, None)
    text = "".join(part for _, part in first["forms"][0]["parts"])
    assert "GraphModule(torch.nn.Mod ..." in text and "(z,)" in text and "l_batch_ =" not in text
    assert first["forms"][0]["cut"].endswith(f" of {len(DYNAMO):,} characters: lines are cut after 30, inputs' names left out.")


def test_a_log_that_is_gone_leaves_the_texts_out(tmp_path):
    report = rich_report(tmp_path)
    (tmp_path / "log").unlink()
    (first, *_), _ = graphs.graphs(report, AT, None)
    assert first["forms"] == [] and first["left"] == ["g0", "o0", "g2"]
