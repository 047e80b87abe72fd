"""Pictures that Graphviz lays out: they fit, are the same again, and fall back where there is no layout; Graphviz sees no text of a log."""

import random
import re
import time
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import pygraphviz
import pytest

from dynadiag.graphs.graphviz_layout import LayoutError, lay_out
from dynadiag.render.dot_text import Question, dot_text, layout_text
from dynadiag.render.drawing import drawn
from dynadiag.render.layout import SANS, below, text_width
from dynadiag.render.picture import Link, Panel, Picture, Row
from tests.unit.render.test_graph_picture import chain, layers, made, node, size
from tests.unit.render.test_pictures import assert_harmless

PIECES = ["<b>", "</table>", "<script>x()</script>", "&lt;", '"', '"]; n0 -> n1; "', "\\N", "\\G", "\\l", "\\", "subgraph cluster_x {", "}",
          "//", "/*", "\x00", "\x1b[31m", "\u202e", "\ud800", "\n", "\r", "label=", "URL=javascript:", "%s", "漢字", "é", "#include",
          "digraph {", "<<b>x</b>>"]  # fmt: skip


def many_uses(count):
    inputs = [node("x", op="placeholder", target="L_x_")]
    body = [node(f"a{i}", f"torch.f{i}", tuple({f"a{i - 1}", f"a{i // 2}"} if i else {"x"})) for i in range(count)]
    return [*inputs, *body, node("output", op="output", args=(f"a{count - 1}",))]


def fan(count):
    body = [node(f"a{i}", f"torch.f{i}", ("x",)) for i in range(count)]
    joined = node("c", "torch.cat", [f"a{i}" for i in range(count)])
    return [node("x", op="placeholder", target="L_x_"), *body, joined, node("output", op="output", args=("c",))]


def modules(i):
    path = ("encoder", "decoder")[i >= 20], ("attention", "mlp")[i % 20 >= 10]
    return ("L['self']", f"L['self'].{path[0]}", f"L['self'].{path[0]}.{path[1]}")


def places(text):
    return [tuple(float(box.get(key)) for key in ("x", "y", "width", "height")) for box in ElementTree.fromstring(text).iter()
            if box.tag.endswith("rect") and "dd-box" in box.get("class", "") and box.get("rx") == "5"]  # fmt: skip


NESTED = made(chain(40, ops=[f"torch.op{i}" for i in range(40)], modules=modules))


@pytest.mark.parametrize(
    "picture",
    [made(chain(6)), made(layers(12)), NESTED, made(fan(12)), made(many_uses(40))],
    ids=["chain", "layers", "nested", "fan", "uses"],
)
def test_a_picture_in_ranks_fits_and_is_the_same_again(picture):
    drawing = drawn(picture, "graphviz")
    width, height = size(drawing.text)
    assert drawing.note is None
    assert width <= 860
    assert height <= 1.5 * size(drawn(picture, "columns").text)[1]
    scale = width / float(ElementTree.fromstring(drawing.text).get("viewBox").split()[2])
    assert 11 * scale >= 9
    boxes = places(drawing.text)
    assert len(boxes) == len(picture.rows)
    for at, (x, y, wide, high) in enumerate(boxes):
        assert all(x >= u + w or u >= x + wide or y >= v + h or v >= y + high for u, v, w, h in boxes[at + 1 :])
    assert drawn(picture, "graphviz").text == drawing.text


def test_every_link_is_a_line_or_told_in_words():
    picture = made(many_uses(40))
    root = ElementTree.fromstring(drawn(picture, "graphviz").text)
    arrows = sum(item.tag.endswith("polygon") for item in root.iter())
    words = [item.text for item in root.iter() if item.tag.endswith("text") and (item.text or "").startswith("from ")]
    assert all("more" not in text for text in words)
    assert arrows + sum(text.count(",") + 1 for text in words) == len(picture.links)


def test_a_long_chain_stands_in_columns_side_by_side():
    boxes = places(drawn(NESTED, "graphviz").text)
    assert len({round(x / 100) for x, *_ in boxes}) >= 3


def test_the_text_for_graphviz_has_no_word_of_the_log(monkeypatch):
    asked = []
    monkeypatch.setattr("dynadiag.render.drawing.lay_out_dot", lambda text, **options: asked.append(text) or lay_out(text, **options))
    drawn(made(chain(5, ops=["torch.secret_operator"]), labels={"x": "secret"}), "graphviz")
    assert asked and all("secret" not in text for text in asked)


def hostile(seed):
    chance = random.Random(seed)
    return "".join(chance.choice(PIECES) for _ in range(chance.randint(1, 6)))


def test_two_hundred_hostile_names_are_text_and_nothing_else():
    for start in range(0, 200, 20):
        names = [hostile(seed) for seed in range(start, start + 20)]
        rows = tuple(Row(kind="view", name=name, note=name, below=(name,), tip=name, outer=0) for name in names)
        links = tuple(Link(tail=at, head=at + 1, label=names[at]) for at in range(19))
        picture = Picture(
            title=names[0], summary=(names[1],), rows=rows, panels=(Panel(title=names[2], tag=names[3]),), links=links, legend=()
        )
        drawing = drawn(picture, "graphviz")
        assert drawing.note is None
        assert_harmless(drawing.text)
        # What Graphviz itself reads in the text for people: the same nodes and edges, whatever their names.
        found = pygraphviz.AGraph(string=drawing.dot)
        assert (len(found.nodes()), len(found.edges())) == (20, 19)
        items = [*found.nodes(), *found.edges()]
        assert not any(item.attr["URL"] for item in items)
        assert all(item.attr["label"].replace("\\n", "").strip() or not item.attr["label"] for item in items)


def test_a_name_of_characters_that_show_nothing_gives_no_line_of_a_label():
    rows = tuple(Row(kind="view", name=name, note="", below=("\u202e",), tip="", outer=0) for name in ("a", "\r"))
    picture = Picture(title="", summary=("\x00",), rows=rows, panels=(Panel(title="\n", tag=""),), links=(), legend=())
    labels = re.findall(r'n\d \[label=("[^"]*"|\w+)', dot_text(picture))
    assert labels == ["a", '""']
    assert 'label=""' in dot_text(replace(picture, links=(Link(tail=0, head=1, label="\r"),))).split("->")[0]
    assert "label" not in dot_text(replace(picture, links=(Link(tail=0, head=1, label="\r"),))).split("->")[1]


def test_a_label_is_never_too_long_for_graphviz():
    row = Row(kind="view", name="\\漢" * 20_000, note="n" * 20_000, below=("é" * 20_000,))
    picture = Picture(title="t" * 20_000, summary=(), rows=(row,), panels=(), links=(), legend=())
    assert len(pygraphviz.AGraph(string=dot_text(picture)).nodes()) == 1


def test_without_a_layout_the_columns_are_taken_and_it_is_told(monkeypatch):
    monkeypatch.setattr("dynadiag.graphs.graphviz_layout.why_missing", lambda engine: f"no {engine}")
    drawing = drawn(made(chain(6)))
    assert drawing.note == "laid out by the dot program: no graphviz; in columns: no dot"
    assert drawing.text == drawn(made(chain(6)), "columns").text


def test_without_the_package_that_writes_dot_text_there_is_a_picture_in_columns(monkeypatch):
    monkeypatch.setattr("dynadiag.graphs.graphviz_layout.importlib.util.find_spec", lambda name: None)
    drawing = drawn(made(chain(6)))
    assert drawing.dot is None
    assert "the package graphviz is not installed" in (drawing.note or "")
    assert drawing.text == drawn(made(chain(6)), "columns").text


def test_a_layout_that_does_not_end_is_ended_and_the_next_one_works(monkeypatch):
    endless = "digraph {" + "".join(f"n{i}->n{(7 * i) % 900 + 1};n{i}->n{i + 1};" for i in range(900)) + "}"
    with pytest.raises(LayoutError, match="did not end"):
        lay_out(endless, "graphviz", until=time.monotonic() + 0.5)
    assert lay_out("digraph { a -> b }", "graphviz", until=time.monotonic() + 120).boxes.keys() == {"a", "b"}


def test_where_the_time_ends_the_best_layout_so_far_is_taken(monkeypatch):
    asked = []

    def slow(text, **options):
        asked.append(text)
        if len(asked) > at_most:
            raise LayoutError("Graphviz did not end within 25 s")
        return lay_out(text, **options)

    monkeypatch.setattr("dynadiag.render.drawing.lay_out_dot", slow)
    at_most = 5
    drawing = drawn(NESTED, "graphviz")
    assert drawing.note is None
    assert len(asked) == at_most + 1
    assert size(drawing.text)[0] <= 860
    at_most = 0
    assert "did not end" in (drawn(NESTED, "graphviz").note or "")


def test_a_picture_too_wide_for_ranks_stands_in_columns():
    picture = made(fan(70))
    began = time.monotonic()
    drawing = drawn(picture)
    assert drawing.text == drawn(picture, "columns").text
    assert "wider than 860 px" in (drawn(picture, "graphviz").note or "")
    assert time.monotonic() - began < 120


def stairs(blocks, long):
    """Blocks in panels, each with a shortcut beside it, which push one another aside."""
    rows, links = [], []
    for block in range(blocks):
        first = len(rows)
        rows.append(Row(kind="reduction", name="pool", note="f32[2,64,28,28]"))
        rows.append(Row(kind="matrix", name="shortcut", note="f32[2,64,28,28]"))
        rows += [Row(kind="pointwise", name=f"step{step} of it", note="f32[2,64,28,28]", outer=block) for step in range(long)]
        rows.append(Row(kind="pointwise", name="unused by any", outer=block))
        last = first + 1 + long
        links += [(first, first + 1), (first, first + 2), (first + 1, last), *((at, at + 1) for at in range(first + 2, last))]
        links += [(last, len(rows))] if block + 1 < blocks else []
    panels = tuple(Panel(title=f"blocks.{at}", tag="Block") for at in range(blocks))
    return Picture(title="g0", summary=(), rows=tuple(rows), panels=panels, links=tuple(Link(tail=a, head=b) for a, b in links), legend=())


def test_blocks_that_push_one_another_aside_stand_in_files():
    picture = stairs(8, 6)
    drawing = drawn(picture)
    assert drawing.text == drawn(picture, "graphviz").text
    width, height = size(drawing.text)
    assert width <= 860
    assert height <= size(drawn(picture, "columns").text)[1]


def test_boxes_in_one_file_have_one_line_between_them():
    picture = made(chain(3))
    sizes = dict.fromkeys(range(3), (90.0, 24.0))
    text = layout_text(picture, Question(sizes, {(0, 1)}, {}, (), ((0, 1), (1, 2)), 16.0, in_file=True))
    assert (text.count("n0 -> n1"), text.count("n1 -> n2")) == (1, 1)
    found = lay_out(text, "graphviz", until=time.monotonic() + 120)
    assert [(curve.tail, curve.head) for curve in found.curves] == [("n0", "n1")]


def test_the_dot_text_names_every_box_panel_and_link():
    text = dot_text(NESTED)
    assert text.count("subgraph") == len(NESTED.panels)
    assert text.count(" -> ") == len(NESTED.links)
    assert all(f"op{i}" in text for i in range(40))


def test_five_thousand_nodes_are_a_picture_in_time_and_size():
    began = time.process_time()
    drawing = drawn(made(many_uses(5_000)))
    assert time.process_time() - began < 30
    assert len(drawing.text) + len(drawing.dot) < 5_000_000


def test_capitals_stay_inside_their_box():
    """Helvetica's A has 7.3 of 11 px, and M 9.2: more than the 6.2 px that a usual text takes for a character."""
    row = Row(kind="view", name="x", below=("A" * 80, "WM" * 40, "usual text of a reason that is long enough for two lines of a box"))
    lines = below(row, 230, ())
    assert all(7.34 * line.count("A") + 10.4 * line.count("W") + 9.2 * line.count("M") <= 222 for line in lines)
    assert text_width("usual text, as it was", SANS) == SANS * len("usual text, as it was")
