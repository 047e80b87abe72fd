"""What the pictures show, before anybody lays them out."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynadiag.model.graph import Node
from dynadiag.model.location import Location
from dynadiag.render import dot
from dynadiag.render.frame_map import FRAMES_AT_MOST, frame_map
from dynadiag.render.graph_sketch import BOXES_AT_MOST, DEPTH_AT_MOST, graph_sketch
from dynadiag.render.sketch import Box, Sketch, depth


def node(name, target="torch.relu", args=(), op="call_function", line=None, modules=(), annotation=None):
    place = None if line is None else Location("/home/me/proj/model.py", line, "forward", f"line {line}")
    return Node(name=name, op=op, target=target, args=tuple(args), location=place, modules=tuple(modules), annotation=annotation)


def chain(length, **options):
    first = [node("x", op="placeholder", target="L_x_")]
    body = [
        node(f"a{i}", args=("x" if i == 0 else f"a{i - 1}",), **{key: value(i) for key, value in options.items()}) for i in range(length)
    ]
    return [*first, *body, node("output", op="output", args=(f"a{length - 1}",))]


def pairs(sketch):
    return {(arrow.tail, arrow.head) for arrow in sketch.arrows}


def test_inputs_attributes_and_output_are_folded_into_the_nodes():
    nodes = [
        node("L_x_", op="placeholder"),
        node("weight", op="get_attr"),
        node("linear", "torch._C._nn.linear", ("l_x_", "weight"), annotation="f32[2, 4][4, 1]cpu", line=7),
        node("add", "operator.add", ("linear", "linear")),
        node("output", op="output", args=("(add,)",)),
    ]
    sketch = graph_sketch(nodes, title=("t",))
    assert [box.lines for box in sketch.boxes] == [("linear", "f32[2, 4]", "in: 2 inputs"), ("add",)]
    assert [box.look for box in sketch.boxes] == ["input", "output"]
    assert pairs(sketch) == {(0, 1)}
    assert "/home/me/proj/model.py:7 in forward: line 7" in sketch.boxes[0].tip
    assert "uses L_x_, weight" in sketch.boxes[0].tip
    assert sketch.title[1].startswith("3 input")


@pytest.mark.parametrize(
    ("target", "look"),
    [
        ("add_", "inplace"),
        ("torch.ops.aten.copy_.default", "inplace"),
        ("operator.iadd", "inplace"),
        ("operator.setitem", "inplace"),
        ("operator.and_", "plain"),
        ("operator.not_", "plain"),
        ("and_", "plain"),
        ("operator.index", "plain"),
        ("torch.ops.aten.add.Tensor", "plain"),
        ("__getitem__", "plain"),
        ("add", "plain"),
    ],
)
def test_ops_that_write_in_place_stand_out(target, look):
    boxes = graph_sketch([node("x", op="placeholder"), node("y"), node("z", target, ("y",)), node("w", args=("z",))], title=()).boxes
    assert boxes[1].look == look


def test_parameters_are_named_in_the_tip_only():
    nodes = [node("l_self_modules_fc_parameters_weight_", op="placeholder"), node("y", args=("l_self_modules_fc_parameters_weight_",))]
    (box,) = graph_sketch(nodes, title=()).boxes
    assert box.lines == ("relu",)
    assert "uses l_self_modules_fc_parameters_weight_" in box.tip


def test_a_deep_graph_is_collapsed_by_module_and_says_so():
    sketch = graph_sketch(
        chain(400, modules=lambda i: ("model", f"model.layer.{i // 10}", f"model.layer.{i // 10}.part.{i}")), title=("t",)
    )
    assert len(sketch.boxes) == 40
    assert sketch.boxes[3].lines[:2] == ("model.layer.3", "10 nodes")
    assert sketch.title[-1] == "400 nodes collapsed into 40 boxes by module, 2 levels deep"
    assert pairs(sketch) == {(i, i + 1) for i in range(39)}


def test_without_modules_it_is_collapsed_by_source_line_and_by_function():
    by_line = graph_sketch(chain(400, line=lambda i: i // 10), title=())
    assert by_line.title[-1] == "400 nodes collapsed into 40 boxes by source line"
    assert by_line.boxes[0].lines[0] == "line 0"


def test_without_anything_it_is_collapsed_into_equal_windows():
    sketch = graph_sketch(chain(1000), title=())
    assert sketch.title[-1] == "1,000 nodes collapsed into 40 boxes of 25 nodes each"
    assert sketch.boxes[0].lines == ("a0 ... a24", "25 nodes", "relu 25", "in: x")


def test_nodes_that_have_no_line_are_not_lumped_together():
    sketch = graph_sketch(chain(120, line=lambda i: None if i % 2 else 5), title=())
    assert "collapsed" in sketch.title[-1]
    assert "by source line" not in sketch.title[-1]


def test_the_break_that_ended_the_graph_stands_behind_its_outputs():
    sketch = graph_sketch(chain(3), title=(), ending=Box(lines=("b0",), look="break"))
    assert sketch.boxes[-1].lines == ("b0",)
    assert [(arrow.tail, arrow.head) for arrow in sketch.arrows if arrow.strong] == [(2, 3)]


def test_a_graph_without_nodes_is_a_picture_too():
    assert graph_sketch([], title=()).boxes
    ended = graph_sketch([node("x", op="placeholder")], title=(), ending=Box(lines=("b0",), look="break"))
    assert [box.lines for box in ended.boxes] == [("b0",)]


@given(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 8), st.integers(0, 3)), max_size=400))
def test_no_graph_exceeds_the_limits_or_gets_a_backward_arrow(spec):
    nodes = [
        node(f"a{i}", args=(f"a{back % (i + 1)}", f"a{i - 1}"), line=line or None, modules=("m", f"m.{module}"))
        for i, (back, line, module) in enumerate(spec)
    ]
    sketch = graph_sketch(nodes, title=())
    assert len(sketch.boxes) <= BOXES_AT_MOST
    assert depth(len(sketch.boxes), tuple(pairs(sketch))) <= DEPTH_AT_MOST
    assert all(tail < head for tail, head in pairs(sketch))


def test_the_frame_map_shows_the_chain_of_a_break(samples):
    sketch = frame_map(samples.sample_report())
    (site,) = [number for number, box in enumerate(sketch.boxes) if box.lines[0] == "b0 GB0123, 5 events"]
    assert sketch.boxes[site].lines[1:] == ("Unsupported Tensor.backward() call", "train.py:41", "loss.backward()")
    strong = [(arrow.tail, arrow.head) for arrow in sketch.arrows if arrow.strong]
    (tail,) = [tail for tail, head in strong if head == site]
    (head,) = [head for tail, head in strong if tail == site]
    assert sketch.boxes[tail].lines[0] == "train_step"
    assert sketch.boxes[head].lines[0] == "train_step, resumed at line 41"


def test_the_frame_map_colours_what_ran_eager_and_joins_recompilations(samples):
    looks = {box.lines[0]: (box.look, box.lines[-1]) for box in frame_map(samples.sample_report()).boxes}
    assert looks["log_metrics"] == ("eager", "f4: ran eagerly")
    assert looks["forward"] == ("compiled", "f2, f3: compiled, 2 compilations")
    assert looks["train_step"][0] == "broke"
    assert looks["b1, 1 event"] == ("break", "the whole frame runs eagerly")


def test_the_frame_map_of_a_huge_run_keeps_the_frames_that_matter(samples):
    report = samples.sample_report()
    quiet = tuple(replace(report.run.frames[2], id=f"f{index}", name=f"quiet{index}") for index in range(5, 1000))
    sketch = frame_map(replace(report, run=replace(report.run, frames=(*quiet, *report.run.frames))))
    names = [box.lines[0] for box in sketch.boxes]
    assert sum(name.startswith("quiet") for name in names) < FRAMES_AT_MOST
    assert {"train_step", "log_metrics"} <= set(names)
    assert any("not drawn" in line for line in sketch.title)


def test_the_frame_map_says_when_nothing_was_compiled(samples):
    sketch = frame_map(samples.empty_report())
    assert "nothing was compiled" in sketch.title
    assert sketch.boxes == ()


def test_frames_of_two_ranks_are_told_apart(samples):
    report = samples.sample_report()
    ranks = tuple(replace(report.run.processes[0], index=index, rank=index) for index in range(2))
    lines = [box.lines[-1] for box in frame_map(replace(report, run=replace(report.run, processes=ranks))).boxes]
    assert "f0: broke, rank 0" in lines


@pytest.mark.parametrize("text", ['"}; digraph{', "<b>x</b>", "\\N \\G \\E", "&lt;&amp;", "a\x00b\ufffe", "[label=x]", "n0->n1; //", "\\"])
def test_dot_text_has_our_ids_only_and_balanced_quotes(text):
    source = dot.source(Sketch(title=(text,), boxes=(Box(lines=(text,), tip=text), Box(lines=(text,))), arrows=()))
    bare = __import__("re").sub(r'"(?:\\.|[^"\\])*"', '""', source)
    assert '"' not in bare.replace('""', "")
    ids = {
        line.split()[0] for line in bare.splitlines() if line.strip() and line.split()[0] not in ("digraph", "graph", "node", "edge", "}")
    }
    assert ids == {"n0", "n1"}
    assert "\x00" not in source
