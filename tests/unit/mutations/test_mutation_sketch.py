"""The picture of a graph's mutations: inputs, writes, write-back, and a window around them."""

from __future__ import annotations

from dataclasses import replace

from dynadiag import report
from dynadiag.model.graph import Node
from dynadiag.model.location import Location
from dynadiag.model.run import Run, RunInfo
from dynadiag.render.mutation_sketch import NODES_AT_MOST, drawn_graphs, mutation_sketch

PLACE = Location("/home/me/train.py", 7, "fn", "x.add_(1)")


def node(name, target, *args, op="call_function", place=None):
    return Node(name=name, op=op, target=target, args=args, location=place)


def graph(far=20):
    body = [node("L_x_", "L_x_", op="placeholder"), node("view", "view", "l_x_", op="call_method")]
    body.append(node("add_", "add_", "view", "1", op="call_method", place=PLACE))
    body += [node(f"sin_{number}", "torch.sin", f"sin_{number - 1}" if number else "add_") for number in range(far)]
    return [*body, node("output", "output", f"sin_{far - 1}", op="output")]


def test_the_write_is_drawn_between_its_input_and_what_happens_to_it(build):
    sketch = mutation_sketch(graph(), [build.mutation(where="epilogue", bytes_written_back=4096)], title=("t",))
    looks = [box.look for box in sketch.boxes]
    assert (looks[0], looks[-1], looks.count("inplace")) == ("mutated", "writeback", 1)
    writer, back = looks.index("inplace"), len(looks) - 1
    assert sketch.boxes[back].lines == ("copied back after the graph", "4,096 bytes per call")
    assert [(arrow.tail, arrow.head) for arrow in sketch.arrows if arrow.strong] == [(writer, back)]
    assert (0, 1) in [(arrow.tail, arrow.head) for arrow in sketch.arrows]


def test_what_is_far_from_a_write_is_left_out_and_said(build):
    sketch = mutation_sketch(graph(far=500), [build.mutation()], title=("t",))
    assert len(sketch.boxes) <= NODES_AT_MOST + 2
    assert "498 nodes not near a write left out" in sketch.title


def test_only_mutations_that_cost_something_are_drawn(build):
    free = ({"kind": "free", "basis": "derived", "detail": "in the graph"},)
    made = replace(
        report.build(Run(info=RunInfo()), passes=()),
        mutations=(build.mutation(0, graph="g0"), build.mutation(1, graph="g1", effects=free), build.mutation(2, graph=None)),
    )
    assert list(drawn_graphs(made)) == ["g0"]


def test_hostile_names_stay_text(build):
    sketch = mutation_sketch(graph(), [build.mutation(input="\x1b[31m" + "A" * 500)], title=("t",))
    assert all("\x1b" not in line and len(line) <= 60 for box in sketch.boxes for line in box.lines)
