"""The nodes of a graph under the names that torch gives them."""

from dynadiag.trace import graph_nodes

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
