"""Graphs are the same or not by their operators, arguments and wiring, never by the names of their nodes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynadiag.graphs.structure import MOST_NODES, is_same, structure_of
from dynadiag.model.graph import Node
from dynadiag.trace import graph_nodes

TEXT = """class GraphModule(torch.nn.Module):
    def forward(self, L_x_: "f32[4, 16]", L_y_: "f32[16, s77]"):
        l_x_ = L_x_
        l_y_ = L_y_
        mm: "f32[4, s77]" = torch.mm(l_x_, l_y_);  l_x_ = None
        relu: "f32[4, s77]" = torch.relu(mm);  mm = None
        add: "f32[4, s77]" = relu + l_y_;  relu = l_y_ = None
        sum_1: "f32[]" = add.sum(dim = 0);  add = None
        return (sum_1,)
"""


def structure(text):
    return structure_of(graph_nodes(text))


def same(one, other):
    return is_same(structure(one), structure(other))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([("mm", "matmul_7"), ("torch.matmul_7", "torch.mm")], True),
        ([("l_x_", "a"), ("l_y_", "b"), ("L_x_", "L_self_z"), ("s77", "s3")], True),
        ([("f32[4", "f32[8")], True),
        ([("torch.mm(l_x_, l_y_)", "torch.mm(l_y_, l_x_)")], False),
        ([("relu + l_y_", "l_y_ + relu")], False),
        ([("dim = 0", "dim = 1")], False),
        ([("torch.relu", "torch.nn.functional.gelu")], False),
        ([("relu + l_y_", "relu + l_x_")], False),
        ([("relu + l_y_", "relu - l_y_")], False),
        ([("return (sum_1,)", "return (sum_1, sum_1)")], False),
    ],
)
def test_names_and_shapes_do_not_count_and_all_else_does(changes, expected):
    text = TEXT
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    assert same(TEXT, text) is expected


def test_the_order_of_the_text_does_not_count_where_the_output_depends_on_it():
    branches = ["        a = torch.sin(l_x_)\n", "        b = torch.cos(l_x_)\n"]
    head = "class GraphModule(torch.nn.Module):\n    def forward(self, L_x_):\n        l_x_ = L_x_\n"
    tail = "        c = a + b\n        return (c,)\n"
    assert same(head + "".join(branches) + tail, head + "".join(branches[::-1]) + tail)


def test_equal_colours_are_not_enough():
    """Two triangles and a hexagon: each node looks like the others, so only the walk from the output can tell."""

    def ring(edges):
        nodes = [Node(name=f"n{n}", op="call_function", target="f", args=()) for n in range(6)]
        reads = [Node(name=f"e{n}", op="call_function", target="g", args=(f"n{a}", f"n{b}")) for n, (a, b) in enumerate(edges)]
        return structure_of([*nodes, *reads, Node(name="output", op="output", target="output", args=tuple(f"e{n}" for n in range(6)))])

    triangles = ring([(0, 1), (1, 2), (2, 0), (3, 4), (4, 5), (5, 3)])
    hexagon = ring([(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 0)])
    assert not is_same(triangles, hexagon)
    assert is_same(hexagon, ring([(5, 4), (4, 3), (3, 2), (2, 1), (1, 0), (0, 5)]))


def test_writes_that_no_output_depends_on_count():
    text = TEXT.replace("        sum_1", "        copy_ = l_y_.copy_(add);  copy_ = None\n        sum_1").replace(
        "relu = l_y_ = None", "relu = None"
    )
    assert same(text, text.replace("copy_ =", "written ="))
    assert not same(text, TEXT)
    assert not same(text, text.replace("l_y_.copy_(add)", "l_y_.copy_(relu)"))


def test_writes_in_another_order_are_the_same_graph():
    head = "class GraphModule(torch.nn.Module):\n    def forward(self, L_x_, L_y_, L_z_):\n"
    head += "".join(f"        l_{name}_ = L_{name}_\n" for name in "xyz")
    writes = ["        a = l_x_.copy_(l_z_)\n", "        b = l_y_.copy_(l_z_)\n", "        c = l_z_.copy_(l_x_)\n"]
    tail = "        return (l_z_,)\n"
    orders = ["".join(writes), "".join(writes[::-1]), writes[1] + writes[0] + writes[2]]
    assert all(same(head + one + tail, head + other + tail) for one in orders for other in orders)
    other = writes[0] + writes[1] + "        c = l_z_.copy_(l_z_)\n"
    assert not same(head + orders[0] + tail, head + other + tail)


def test_too_many_nodes_have_no_structure():
    assert structure_of([Node(name=f"n{n}", op="call_function", target="f") for n in range(MOST_NODES + 1)]) is None


@st.composite
def graphs(draw):
    nodes = [Node(name=f"x{n}", op="placeholder", target=f"x{n}") for n in range(draw(st.integers(1, 3)))]
    for n in range(draw(st.integers(0, 8))):
        args = draw(st.lists(st.sampled_from([node.name for node in nodes]), min_size=1, max_size=3))
        nodes.append(Node(name=f"n{n}", op="call_function", target=draw(st.sampled_from("fgh")), args=tuple(args)))
    outputs = draw(st.lists(st.sampled_from([node.name for node in nodes]), max_size=3))
    return [*nodes, Node(name="output", op="output", target="output", args=tuple(outputs))]


@given(graphs(), st.randoms(use_true_random=False))
def test_any_graph_is_the_same_under_other_names(nodes, chance):
    names = [node.name for node in nodes]
    chance.shuffle(shuffled := [f"v{n}" for n in range(len(names))])
    new = dict(zip(names, shuffled, strict=True))
    renamed = [Node(name=new[one.name], op=one.op, target=one.target, args=tuple(new[arg] for arg in one.args)) for one in nodes]
    assert is_same(structure_of(nodes), structure_of(renamed))


@given(graphs(), st.data())
def test_another_argument_is_another_graph(nodes, data):
    """Of the nodes that the output depends on; the new argument is one that no swap of equal nodes can give."""
    calls = [n for n, node in enumerate(nodes) if node.op == "call_function"]
    if not calls:
        return
    at = data.draw(st.sampled_from(calls))
    changed = list(nodes)
    changed[at] = Node(name=nodes[at].name, op="call_function", target="other", args=nodes[at].args)
    assert not is_same(structure_of(nodes), structure_of(changed))
