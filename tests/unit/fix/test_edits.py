"""Edits of a text: they stand where the lines are, keep all else, and are refused where they would not."""

from __future__ import annotations

import ast
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynadiag.fix.candidates import has_branch
from dynadiag.fix.edits import Edit, EditError, Span, applied, patch

TEXT = '''"""A script."""
import os
import torch


def step(x):  # the step
    y = x * 2
    if y.sum() > 0:  # which way
        y = y + 1
    return y.sin()
'''


def edit(old: str, new: str, near: int | None = None) -> Edit:
    return Edit(file="a.py", old=tuple(old.splitlines()), new=tuple(new.splitlines()), near=near)


def test_a_statement_is_replaced_with_its_indentation_and_all_else_stays():
    text, span = applied(TEXT, edit("if y.sum() > 0:\n    y = y + 1", "y = torch.where(y.sum() > 0, y + 1, y)"))
    assert text == TEXT.replace("    if y.sum() > 0:  # which way\n        y = y + 1\n", "    y = torch.where(y.sum() > 0, y + 1, y)\n")
    assert span == Span(8, 9)


def test_the_comment_of_a_line_stays():
    text, _ = applied("x = a()  # why\n", edit("x = a()", "x = b()"))
    assert text == "x = b()  # why\n"


def test_a_line_that_stands_twice_is_the_one_that_was_recorded():
    text = "def f(x):\n    x = x.item()\n    x = x.item()\n"
    assert applied(text, edit("x = x.item()", "x = x.detach()", near=3))[0].splitlines()[2] == "    x = x.detach()"
    with pytest.raises(EditError, match="several places"):
        applied(text, edit("x = x.item()", "x = x.detach()"))


def test_a_line_that_is_not_there_any_more_is_refused():
    with pytest.raises(EditError, match="not in the file"):
        applied(TEXT, edit("y = x * 3", "y = x"))


def test_a_part_of_a_longer_statement_is_refused():
    with pytest.raises(EditError, match="more than these lines"):
        applied("y = f(\n    x.item(),\n)\n", edit("x.item(),", "x.detach(),"))


def test_a_deleted_line_leaves_a_block_that_parses():
    text, _ = applied("def f():\n    if a:\n        torch._dynamo.graph_break()\n    return 1\n", edit("torch._dynamo.graph_break()", ""))
    assert text == "def f():\n    if a:\n        pass\n    return 1\n"
    assert applied("a = 1\nb = 2\n", edit("a = 1", ""))[0] == "b = 2\n"


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_an_option_stands_behind_the_imports(ending):
    text, span = applied(TEXT.replace("\n", ending), Edit(file="a.py", old=(), new=("torch._dynamo.config.x = True",)))
    assert text.split(ending)[:5] == ['"""A script."""', "import os", "import torch", "torch._dynamo.config.x = True", ""]
    assert span == Span(4, 5)


def test_an_option_needs_a_script_that_imports_torch():
    with pytest.raises(EditError, match="import torch"):
        applied("import os\nx = 1\n", Edit(file="a.py", old=(), new=("torch._dynamo.config.x = True",)))


@given(st.integers(0, 8), st.booleans())
def test_whatever_line_is_replaced_the_rest_of_the_tree_is_the_same(number, last):
    rows = [f"v{at} = {at}" for at in range(9)]
    text = "\n".join(rows) + ("" if last else "\n")
    new, _ = applied(text, edit(rows[number], "new = 1", near=number + 1))
    assert [ast.unparse(one) for one in ast.parse(new).body] == [*rows[:number], "new = 1", *rows[number + 1 :]]


def test_git_applies_the_patch(tmp_path: Path):
    file = tmp_path / "in" / "a.py"
    file.parent.mkdir()
    file.write_text(TEXT.rstrip("\n"))  # a last line without an end
    new = applied(file.read_text(), edit("return y.sin()", "return y.cos()"))[0]
    (tmp_path / "fixes.patch").write_text(patch({str(file): file.read_text()}, {str(file): new}, tmp_path))
    subprocess.run(["git", "init", "-q", "."], cwd=tmp_path, check=True)
    subprocess.run(["git", "apply", "fixes.patch"], cwd=tmp_path, check=True)
    assert file.read_text() == new


@pytest.mark.parametrize(
    ("old", "decides"),
    [
        ("for width in widths:", False),
        ("with torch.no_grad():", False),
        ("x = x + 1", False),
        ("if x.sum() > 0:", True),
        ("while x.sum() > 0:", False),
        ("for width in widths if given else []:", True),
        ("if x.sum() > 0:\n    x = x + 1", True),
    ],
)
def test_a_header_alone_is_a_branch_only_where_it_decides(old, decides):
    assert has_branch(edit(old, "pass")) is decides
