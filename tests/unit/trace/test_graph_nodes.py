"""The nodes of a graph under the names that torch gives them."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynadiag.trace import graph_nodes, signature
from dynadiag.trace.graph_text import _PARAMETER, count_graph

AS_ONE_PATTERN = re.compile(r"^ {4}def forward\((.*?)\)(?: -> [^\n]*)?:[ \t]*(?=\n)", re.DOTALL | re.MULTILINE)

TEXT = """class GraphModule(torch.nn.Module):
    def forward(self, L_x_: "f32[3]", s0: "Sym(s0)", L_y_: "f32[3]"):
        l_x_ = L_x_
        l_y_ = L_y_
         # File: /home/me/train.py:4 in f, code: return x + y
        add: "f32[3]" = l_x_ + l_y_;  l_x_ = l_y_ = None
        again = add
        return (add,)
"""


def test_an_input_has_the_name_of_its_node_and_the_argument_as_target():
    nodes = graph_nodes(TEXT)
    assert [(node.name, node.target, node.op, node.annotation) for node in nodes[:3]] == [
        ("l_x_", "L_x_", "placeholder", "f32[3]"),
        ("s0", "s0", "placeholder", "Sym(s0)"),
        ("l_y_", "L_y_", "placeholder", "f32[3]"),
    ]
    assert (nodes[3].name, nodes[3].args) == ("add", ("l_x_", "l_y_"))
    assert [node.op for node in nodes] == ["placeholder"] * 3 + ["call_function", "output"]


def test_a_second_name_of_an_input_renames_nothing():
    nodes = graph_nodes(TEXT.replace("again = add", "other = L_x_"))
    assert nodes[0].name == "l_x_"


@given(st.lists(st.sampled_from(["    def forward(", "\n", ")", ") -> ", ":", " ", "self", ", x: int"]), max_size=30))
def test_the_signature_is_what_one_pattern_says_but_found_in_one_go(parts):
    text = "\n    def forward(" + "".join(parts)
    match = AS_ONE_PATTERN.search(text)
    wanted = (match.start(1), match.end(1), match.end()) if match else None
    assert signature(text) == signature(text.encode()) == wanted


@pytest.mark.parametrize("piece", [") -> ", "    def forward(\n", "):   x", "a:", "a=", "a ", "(", '"', "a: '", " "])
def test_no_signature_makes_the_patterns_look_twice(piece):
    text = f"    def forward({piece * (400_000 // len(piece))}"  # quadratic: minutes
    assert graph_nodes(text) == () and count_graph(text.encode()) is None
    assert len(graph_nodes(f"{text}\n#):\n        return ()\n")) <= 200_002


def test_parameters_are_found_behind_what_is_none():
    signature = "*, x: \"f32[2, 3]\",  # a, b\n  y=(1, 2), /, z: Tuple[int, int] = None, **more, 9a, 'b'"
    assert [match[1] for match in _PARAMETER.finditer(signature) if match[1]] == ["x", "y", "z", "more"]


def test_a_line_with_an_annotation_has_its_place():
    """Work on another CUDA stream, as torch 2.11 prints it; `ac_graph_id` and the like stand there too."""
    text = (
        "class GraphModule(torch.nn.Module):\n    def forward(self, L_x_):\n"
        "        # Annotation: {'stream': 0} File: /home/me/train.py:12 in f, code: a = torch.relu(x)\n"
        "        a = torch.relu(L_x_)\n        return (a,)\n"
    )
    (place,) = {node.location for node in graph_nodes(text) if node.name == "a"}
    assert (place.file, place.line, place.function, place.code) == ("/home/me/train.py", 12, "f", "a = torch.relu(x)")
