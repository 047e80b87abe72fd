"""Which nodes an argument of a printed graph names: a letter of a number, of a text, of a keyword or of a call is none."""

import pytest

from dynadiag.facts.graph_writes import is_write, text_writes
from dynadiag.model.graph import Node
from dynadiag.render.graph_picture import graph_picture
from dynadiag.render.recorded_graph import RecordedGraph
from dynadiag.trace import argument_names


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("add", ["add"]),
        ("1e-05", []),
        ("-1e-05", []),
        ("0x1f", []),
        ("1j", []),
        ("mul_1.stride", ["mul_1"]),
        ("(relu, 2, [add, relu])", ["relu", "add"]),
        ("'sum'", []),
        ('"it\'s mean"', []),
        ("b'abc'", []),
        ("'ij,\\'jk'", []),
        ("device(type='cuda', index=0)", []),
        ("{'x': mean}", ["mean"]),
        ("x == y", ["x", "y"]),
        ("slice(None, add, None)", ["None", "add"]),
        ("torch.float32", ["torch"]),
        ("e", ["e"]),
        ("_foreach[3]", ["_foreach"]),
        ("x if 1else y", ["x", "if", "y"]),
    ],
)
def test_names(text, names):
    assert list(argument_names([text])) == names


def made(name, target, *args):
    return Node(name=name, op="call_function", target=target, args=args)


def test_no_edge_and_no_write_comes_from_a_number_a_text_or_a_keyword():
    first = Node(name="e", op="placeholder", target="L_e_")
    second = Node(name="mean", op="placeholder", target="L_mean_")
    out = made("buffer", "torch.empty", "4", "1e-05")
    loss = made("loss", "torch.nn.functional.mse_loss", "buffer", "'mean'")
    write = made("w", "operator.setitem", "buffer[1e-05]", "'mean'", "loss")
    nodes = [first, second, out, loss, write]
    assert not text_writes(nodes).inputs
    picture = graph_picture(RecordedGraph(nodes=nodes), title="")
    assert {(link.tail, link.head) for link in picture.links} == {(0, 1), (0, 2), (1, 2)}
    assert not [row for row in picture.rows if row.kind == "input"]


@pytest.mark.parametrize("operator", ["and_", "or_", "not_", "is_"])
def test_pythons_operators_whose_names_end_in_an_underscore_write_nothing(operator):
    assert not is_write(made("x", f"operator.{operator}", "mask", "other"))
