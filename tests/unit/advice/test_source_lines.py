"""Lines are often parts of statements, and come from strangers."""

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynadiag.source.line import dotted, parse_line


@pytest.mark.parametrize(
    ("code", "wanted"),
    [
        ("if x.sum() > 0:", "x.sum()"),
        ("elif x.sum() > 0:", "x.sum()"),
        ("while x.sum() < n:", "x.sum()"),
        ("y = foo(x.sum(),", "x.sum()"),
        ('"loss": x.sum(),', "x.sum()"),
        ("return f(a)[x.sum()", "x.sum()"),
        ("with torch.no_grad(), f(x.sum()):", "x.sum()"),
        ("for i in range(x.sum()):", "x.sum()"),
        ("größe = x.sum() + 1", "x.sum()"),
    ],
)
def test_parts_of_statements_are_parsed_and_rewritten(code, wanted):
    line = parse_line(code)
    call = next(line.methods("sum"))
    assert line.text(call) == wanted
    assert line.replaced(call, "NEW") == code.replace(wanted, "NEW")


@pytest.mark.parametrize("code", [None, "", ")", "x)", "a\nb", "f(" * 60, "x" * 2000, "1 +", "\0", "def", "'"])
def test_what_cannot_be_parsed_yields_nothing(code):
    line = parse_line(code)
    assert line.statement is None
    assert list(line.calls("print")) == []
    assert line.only_call() is None


@pytest.mark.parametrize("code", ["print('a')", "f.write(x)"])
def test_a_lone_call_is_known(code):
    assert parse_line(code).only_call() is not None


@pytest.mark.parametrize("code", ["x = print('a')", "print('a'); y = 1", "return f(x)", "print('a',", "with f(x):"])
def test_other_lines_are_no_lone_call(code):
    assert parse_line(code).only_call() is None


def test_dotted_names():
    assert dotted(ast.parse("a.b.c", mode="eval").body) == "a.b.c"
    assert dotted(ast.parse("a().b", mode="eval").body) is None


def test_a_call_that_goes_on_is_not_rewritten():
    assert list(parse_line("print(x.sum(),").calls("print")) == []
    assert parse_line("while f(x,").statement is None


@given(st.text(max_size=200))
def test_any_text_is_survived(code):
    line = parse_line(code)
    for node in line.nodes:
        assert isinstance(line.text(node), str)
        line.replaced(node, "x")
