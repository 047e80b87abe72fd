import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynadiag.errors import NotRebuildableError
from dynadiag.fx.source_text import read_graph_source

GRAPH = """class <lambda>(torch.nn.Module):
    def forward(self, arg0_1: "f32[4][1]cpu"):
         # File: /home/me/train.py:7 in step, code: y = x.sin()
        sin: "f32[4][1]cpu" = torch.ops.aten.sin.default(arg0_1);  arg0_1 = None

        # No stacktrace found for following nodes
        cos: "f32[4][1]cpu" = torch.ops.aten.cos.default(sin)
        return (cos,)

    class true_graph_0(torch.nn.Module):
        def forward(self, x: "f32[4][1]cpu"):
            return (x,)
"""


def test_a_printed_graph_is_read():
    source = read_graph_source(GRAPH)
    assert source.name == "<lambda>"
    assert [(parameter.name, parameter.annotation) for parameter in source.parameters] == [("arg0_1", "f32[4][1]cpu")]
    assert list(source.children) == ["true_graph_0"]
    assert len(source.statements) == 3, "what frees a value is not read: it would be half of the syntax tree"
    first, third = source.statements[:2]
    assert (source.note(first).file, source.note(first).line, source.note(first).code) == ("/home/me/train.py", 7, "y = x.sin()")
    assert source.note(third) is None
    assert isinstance(source.statements[-1], ast.Return)


@pytest.mark.parametrize("line", ['a = f("b;  c = None")', "a = None", "a = f(x);  b = c", "a = f(x)  # b;  c = None"])
def test_only_what_frees_a_value_at_the_end_of_a_line_is_left_out(line):
    source = read_graph_source(f"class G(torch.nn.Module):\n    def forward(self, x):\n        {line}\n        return x\n")
    assert [ast.unparse(one) for one in source.statements[:-1]] == [ast.unparse(one) for one in ast.parse(line).body]


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "not one printed graph"),
        ("print(1)", "not one printed graph"),
        (GRAPH + GRAPH, "not one printed graph"),
        ("import os\n" + GRAPH, "not one printed graph"),
        (GRAPH.replace("    def forward", "    @open\n    def forward", 1), "decorators"),
        (GRAPH.replace('arg0_1: "f32[4][1]cpu"', "arg0_1=open('x', 'w')"), "default argument"),
        (GRAPH.replace("        return (cos,)", "        return (cos,"), "not valid Python"),
        ("class A(torch.nn.Module):\n    x = 1\n", "Assign"),
        ("class A(torch.nn.Module):\n    pass\n", "Pass"),
        ("class A(Evil):\n    def forward(self): return 1\n", "not a class as FX prints it"),
    ],
)
def test_other_text_is_refused_with_the_reason(text, part):
    with pytest.raises(NotRebuildableError, match=part):
        read_graph_source(text)


@given(st.text(max_size=200))
def test_any_text_is_a_graph_or_a_refusal(text):
    try:
        read_graph_source(text)
    except NotRebuildableError as error:
        assert "\n" not in error.message


@given(st.integers(0, len(GRAPH)), st.text(max_size=8))
def test_a_damaged_graph_is_a_graph_or_a_refusal(position, inserted):
    try:
        read_graph_source(GRAPH[:position] + inserted + GRAPH[position:])
    except NotRebuildableError as error:
        assert error.message
