"""Edits of a text: they stand where the lines are, keep all else, and are refused where they would not."""

from __future__ import annotations

import ast
import subprocess
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dynadiag.changes.edits import Edit, Span, applied, patch
from dynadiag.errors import EditError
from dynadiag.fix.candidates import has_branch

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
    new = "    # which way\n    y = torch.where(y.sum() > 0, y + 1, y)\n"
    assert text == TEXT.replace("    if y.sum() > 0:  # which way\n        y = y + 1\n", new)
    assert span == Span(8, 10)


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
    with pytest.raises(EditError, match="only a part"):
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


AROUND = (
    '"""words~>of it"""~',
    "x = (1,  # one~>>2,~)~",
    "y = 1 + \\~   2~",
    "s = f'''a~  {b} # no~'''~",
    "a = 1; b = 2 ;  # both~",
    "@deco  # d~# on it~@other(1)~def f(x):  # f~># in~~>return x~># foot~~",
    "\x0c~",
    "# words~",
    "~   ~",
    "if a:~>pass~ # odd~>b~else: pass~",
    "class A: x = 1~",
    "async def g(): return [i async for i in x]~",
    "match a:~>case 1: pass~>case [_, *_]: pass~",
    "é = 'ü'~type X = int~",
    "try:~>pass~except* E:~>    pass~",
)
"""Statements that stand around an edit: `~` ends a row, `>` is one indentation."""
PLACES = (
    ("READ  # keep~", "READ"),
    ("a = 1; READ ; b = 'é'  # both~", "READ"),
    ("READ;~", "READ"),
    ("if a: READ~", "READ"),
    ("def h(a):~>'''it''' # h~>if a:~>># why~>>READ # keep~>># foot~>return a~", "READ"),
    ("class B:~~># first~>@mark~>def k(y = 1 ,):  # k~>>return (~>>>READ[0]~>>) # r~", "return (\n>READ[0]\n)"),
    ("for z in READ : # each~># in~>pass~else:~>pass~", "for z in READ :"),
    ("if b:~>pass~elif READ:  # or~>pass~else:~>pass~", "elif READ:"),
    ("@one~@mark( READ )  # m~class C:~>pass~", "@mark( READ )"),
    ("with READ as r , q:~>with p: pass~", "with READ as r , q:"),
)


@given(
    st.lists(st.sampled_from(AROUND), max_size=4),
    st.lists(st.sampled_from(AROUND), max_size=4),
    st.sampled_from(PLACES),
    st.sampled_from(["    ", "\t", "  "]),
    st.sampled_from(["\n", "\r\n"]),
    st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_every_other_byte_stays_as_it_was(above, below, place, indent, newline, last):
    """Comments, empty rows, decorators, semicolons, continued lines, texts over several lines, tabs, line ends."""
    body, old = place
    text = "".join((*above, body, *below)).replace("READ", "target(1)")
    text = text.replace("~", newline).replace(">", indent)
    text = text.rstrip(newline) if last else text
    try:
        ast.parse(text)
    except SyntaxError:  # of a newer Python
        assume(False)
    old = old.replace("READ", "target(1)").replace(">", indent)
    new, _ = applied(text, edit(old, old.replace("1", "2")))
    assert new == text.replace("target(1)", "target(2)")


def test_comments_of_what_goes_stay_above_what_comes():
    branch = "    if x:  # which\n        # grow\n        x = g(\n            x,  # this\n        )\n        # end\n"
    text = f"def f(x):\n    # why\n{branch}    return x\n"
    new, span = applied(text, edit("if x:\n    x = g(x,)", "x = w(x)"))
    assert new == "def f(x):\n    # why\n    # which\n    # grow\n    # this\n    # end\n    x = w(x)\n    return x\n"
    assert span == Span(3, 8)


def test_what_is_put_before_a_statement_leaves_it_its_comments():
    text = "import a\n\n\n# the step\n@b\ndef f(x):\n\treturn x\n"
    new, span = applied(text, Edit(file="a.py", old=(), new=("y = (", "    1", ")", "", ""), near=5))
    assert new == "import a\n\n\ny = (\n    1\n)\n\n\n# the step\n@b\ndef f(x):\n\treturn x\n"
    assert span == Span(4, 9)


def test_new_blocks_are_indented_as_the_file_is():
    text = "def f(x):\n\tif x:\n\t\treturn x\n"
    new, _ = applied(text, edit("return x", "if a:\n    return (\n        x\n    )\nreturn '''\n1'''"))
    assert new == "def f(x):\n\tif x:\n\t\tif a:\n\t\t\treturn (\n\t\t\t    x\n\t\t\t)\n\t\treturn '''\n1'''\n"


def test_a_line_keeps_its_other_statements():
    text = "if a: b = x.item(); c = 1\n"
    assert applied(text, edit("b = x.item()", ""))[0] == "if a: c = 1\n"
    assert applied(text, edit("b = x.item()", "b = 1; d = 2"))[0] == "if a: b = 1; d = 2; c = 1\n"
    with pytest.raises(EditError, match="on the same line"):
        applied(text, edit("b = x.item()", "if b:\n    c = 1"))


@pytest.mark.parametrize("text", ["x = (\n", f"x = {'+'.join('1' * 1000)}\n", "\ufeffx = 1\n"])
def test_a_syntax_that_the_parser_does_not_know_is_one_clear_line(text):
    with pytest.raises(EditError, match="LibCST does not ") as raised:
        applied(text, edit("x = 1", "x = 2"))
    assert "\n" not in raised.value.message


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
