import os
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from dynadiag.errors import UsageError
from dynadiag.model.location import PayloadRef
from dynadiag.render import palette, pictures, svg
from dynadiag.render.drawing import drawn
from dynadiag.render.recorded_graph import recorded_graph
from dynadiag.render.sketch import LOOKS, Arrow, Box, Sketch, picture_of
from dynadiag_cli.app import app

HOSTILE = r'"}; digraph{ \N \G & &lt; "] <script>x</script> \x5c ]]>'
SKETCH = Sketch(
    title=("a title", HOSTILE),
    boxes=tuple(Box(lines=(f"box {look}", HOSTILE), look=look, tip="tip " + HOSTILE) for look in LOOKS),
    arrows=tuple(Arrow(tail=i, head=i + 1, strong=i % 2 == 0) for i in range(len(LOOKS) - 1)),
)
GRAPH = """class GraphModule(torch.nn.Module):
    def forward(self, L_x_: "f32[4][1]cpu"):
        l_x_ = L_x_

        # File: /home/me/proj/train.py:40 in train_step, code: y = x.sin()
        y: "f32[4][1]cpu" = l_x_.sin();  l_x_ = None

        # File: /home/me/proj/train.py:41 in train_step, code: z = y + 1
        z: "f32[4][1]cpu" = y + 1;  y = None
        return (z,)
"""


def elements(text):
    return {element.tag.rpartition("}")[2] for element in ElementTree.fromstring(text).iter()}


def texts(text, kind):
    return [element.text for element in ElementTree.fromstring(text).iter() if element.tag.endswith(kind)]


def assert_harmless(text):
    assert elements(text) <= {"svg", "g", "title", "desc", "style", "polygon", "path", "text", "rect"}
    attributes = {name for element in ElementTree.fromstring(text).iter() for name in element.attrib}
    assert not [name for name in attributes if "href" in name or name.startswith("on") or name == "style" or name == "id"]
    assert "DOCTYPE" not in text
    assert "<!--" not in text


@pytest.fixture
def report(samples, tmp_path):
    """The sample with graph texts that can be read again."""
    log = tmp_path / "trace.log"
    log.write_text(GRAPH)
    ref = PayloadRef(str(log), 0, len(GRAPH))
    made = samples.sample_report()
    graphs = tuple(replace(graph, text=ref) for graph in made.run.graphs[:4])
    return replace(made, run=replace(made.run, graphs=(*graphs, made.run.graphs[4])), pictures={})


def test_a_picture_shows_exactly_our_text_and_nothing_live():
    drawing = drawn(picture_of(SKETCH), "columns")
    assert drawing.suffix == ".svg"
    assert_harmless(drawing.text)
    assert texts(drawing.text, "text").count(HOSTILE) == len(LOOKS) + 1
    assert sum(text == "tip " + HOSTILE for text in texts(drawing.text, "title")) == len(LOOKS)


def test_the_text_renderer_names_every_box_and_arrow():
    drawing = drawn(picture_of(SKETCH), "text")
    assert drawing.suffix == ".txt"
    assert "0 [pointwise] box plain | " in drawing.text
    assert drawing.text.count(" -> ") == len(SKETCH.arrows)


def test_an_unknown_renderer_is_a_usage_error():
    with pytest.raises(UsageError, match="unknown renderer 'latex'"):
        drawn(picture_of(SKETCH), "latex")


@pytest.mark.parametrize(
    "make",
    [
        lambda root: ElementTree.SubElement(root, "script"),
        lambda root: ElementTree.SubElement(root, "style"),
        lambda root: ElementTree.SubElement(root, "a"),
        lambda root: ElementTree.SubElement(root, "image"),
        lambda root: ElementTree.SubElement(root, "foreignObject"),
        lambda root: root.set("onload", "x()"),
        lambda root: root.set("style", "fill:url(http://e.example)"),
        lambda root: ElementTree.SubElement(root, "rect", fill="url(#x)"),
        lambda root: ElementTree.SubElement(root, "rect", {"class": "dd-box evil"}),
        lambda root: ElementTree.SubElement(ElementTree.SubElement(root, "g"), "text", id="x"),
    ],
)
def test_nothing_but_our_shapes_and_classes_passes_the_seal(make):
    root = ElementTree.Element("svg", width="1", height="1")
    svg.sealed(ElementTree.fromstring(ElementTree.tostring(root)), "t", "d")
    make(root)
    with pytest.raises(ValueError, match="a drawing may not contain"):
        svg.sealed(root, "t", "d")


def test_the_style_sheet_is_ours_alone():
    root = ElementTree.Element("svg")
    ElementTree.SubElement(root, "rect", {"class": "dd-box dd-write"})
    (style,) = (child for child in ElementTree.fromstring(svg.sealed(root, "</style>", "x")) if child.tag.endswith("style"))
    assert style.text == palette.style(["dd-box", "dd-write"])


def test_every_picture_of_a_run_is_written_and_named_by_us(report, tmp_path):
    written, notes = pictures.write(report, tmp_path / "run")
    assert dict(written) == {
        "source": "graphs/source.svg",
        "g0": "graphs/g0-train-step-line-38.svg",
        "g1": "graphs/g1-train-step-line-41.svg",
    }
    assert notes == ()
    names = {name.removeprefix("graphs/") for name in written.values()}
    assert set(os.listdir(tmp_path / "run" / "graphs")) == names | {name.replace(".svg", ".gv") for name in names - {"source.svg"}}
    for name in written.values():
        assert_harmless((tmp_path / "run" / name).read_text())
    first = (tmp_path / "run" / written["g0"]).read_text()
    assert "train.py:40 in train_step: y = x.sin()" in first
    assert "b0 GB0123: Unsupported Tensor.backward() call" in first
    assert "continues after graph break b0" in (tmp_path / "run" / written["g1"]).read_text()


def test_the_recorders_module_stacks_reach_the_picture(report, tmp_path):
    details = '{"nodes": [["y", 0, null], ["z", 7, null], ["q"], 3, ["l_x_", null, null]], "strings": ["model > model.layer"]}'
    path = tmp_path / "details.log"
    path.write_text(details)
    graph = replace(report.run.graphs[0], details=PayloadRef(str(path), 0, len(details)))
    assert [node.modules for node in recorded_graph(graph).nodes] == [(), ("model", "model.layer"), (), ()]


def named(report, *graphs):
    """The report with a finding that names these graphs."""
    return replace(report, findings=(replace(report.findings[0], evidence=graphs),))


def test_graphs_next_to_a_finding_are_drawn_up_to_a_limit(report, tmp_path):
    assert list(pictures.write(named(report, "g3", "g0"), tmp_path)[0]) == ["source", "g0", "g3"]
    assert list(pictures.write(named(report, report.graph_breaks[0].id), tmp_path)[0]) == ["source", "g0", "g1"]
    assert list(pictures.write(named(report), tmp_path)[0]) == ["source"]
    written, notes = pictures.write(named(report, "g0", "g1", "g2"), tmp_path, limit=2)
    assert (list(written), notes) == (["source", "g0", "g1"], ("2 of 3 graphs next to a finding drawn",))


def test_a_file_is_named_by_function_line_and_kind(report):
    graph = report.run.graphs[0]
    kinds = ("dynamo", "aot_forward", "aot_backward", "post_grad")
    assert [pictures.file_stem(replace(graph, kind=kind), report.run) for kind in kinds] == [
        "g0-train-step-line-38",
        "g0-train-step-line-38-forward",
        "g0-train-step-line-38-backward",
        "g0-train-step-line-38-post-grad",
    ]
    assert pictures.file_stem(replace(graph, frame="none"), report.run) == "g0-graph"


def test_a_log_that_is_gone_or_too_long_costs_its_picture_only(report, tmp_path):
    gone = replace(report.run.graphs[0], text=PayloadRef(str(tmp_path / "gone.log"), 0, 10))
    huge = replace(report.run.graphs[1], text=PayloadRef(str(tmp_path / "trace.log"), 0, 1 << 40))
    empty = replace(report.run.graphs[3], text=PayloadRef(str(tmp_path / "trace.log"), 0, 0))
    run = replace(report.run, graphs=(gone, huge, report.run.graphs[2], empty))
    written, notes = pictures.write(named(replace(report, run=run), "g0", "g1", "g2", "g3"), tmp_path, renderer="svg")
    assert list(written) == ["source", "g2"]
    assert [note.split(":")[0] for note in notes] == ["g0 was not drawn", "g1 was not drawn", "g3 was not drawn"]


def test_old_pictures_go_and_other_files_stay(report, tmp_path):
    folder = tmp_path / "graphs"
    folder.mkdir()
    for name in ("g99-old.svg", "frames.txt", "mine.svg", "notes.txt"):
        (folder / name).write_text("x")
    pictures.write(report, tmp_path, renderer="svg")
    assert sorted(set(os.listdir(folder)) & {"g99-old.svg", "frames.txt", "mine.svg", "notes.txt"}) == ["mine.svg", "notes.txt"]


def test_a_link_in_our_place_is_replaced_and_not_followed(report, tmp_path):
    (tmp_path / "graphs").mkdir()
    outside = tmp_path / "precious"
    outside.write_text("keep")
    (tmp_path / "graphs" / "source.svg").symlink_to(outside)
    (tmp_path / "graphs" / ".source.svg.part").symlink_to(outside)
    pictures.write(report, tmp_path, renderer="svg")
    assert outside.read_text() == "keep"


def test_hostile_frame_names_never_become_paths(report, tmp_path, samples):
    frames = tuple(replace(frame, name="../../../" + samples.HOSTILE) for frame in report.run.frames)
    written, _ = pictures.write(replace(report, run=replace(report.run, frames=frames)), tmp_path / "run", renderer="svg")
    assert all(path.startswith("graphs/") and "/" not in path.removeprefix("graphs/") and len(path) < 80 for path in written.values())
    assert sorted(os.listdir(tmp_path)) == ["run", "trace.log"]


def test_progress_is_told(report, tmp_path):
    seen = []
    pictures.write(report, tmp_path, renderer="svg", progress=lambda done, total: seen.append((done, total)))
    assert seen == [(1, 2), (2, 2)]


def test_the_frame_map_stands_in_for_a_ladder_and_is_drawn_on_demand(report, tmp_path, monkeypatch):
    monkeypatch.setattr(pictures, "ladder_svg", lambda *_, **__: None)
    written, _ = pictures.write(named(report), tmp_path)
    assert dict(written) == {"frames": "graphs/frames.svg"}


def test_the_frame_map_of_a_log_is_drawn_on_demand(tmp_path):
    log = tmp_path / "trace.log"
    record = '{"dynamo_start": {"stack": []}, "frame_id": 0, "frame_compile_id": 0, "attempt": 0}'
    log.write_text(f"V1206 15:18:16.845000 4242 torch/a.py:1] {record}\n")
    done = CliRunner().invoke(app, ["graph", str(log), "frames", "-o", str(tmp_path / "drawn")])
    assert done.exit_code == 0 and (tmp_path / "drawn" / "frames.svg").read_text().startswith("<svg")
