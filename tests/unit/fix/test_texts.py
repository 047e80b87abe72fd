"""Several changes in one text, and the marks by which a run can force a condition."""

from __future__ import annotations

import ast

import pytest

from dynadiag.changes.change import Candidate
from dynadiag.changes.edits import Edit, Span
from dynadiag.errors import EditError
from dynadiag.fix.texts import changed, with_conditions

TEXT = """import torch

def step(x):
    y = x * 2
    if y.sum() > 0:
        y = y + 1
    s = y.mean().item()
    return y * s
"""
WHERE = "y = torch.where(y.sum() > 0, y + 1, y)"
OPTION = "torch._dynamo.config.x = True"


def candidate(number: int, old: str, new: str, span: Span, *, branch: bool = False) -> Candidate:
    edit = Edit(file="a.py", old=tuple(old.splitlines()), new=tuple(new.splitlines()), near=span.begin if old else None)
    return Candidate(id=f"x{number}", slug="s", text="t", edits=(edit,), spans=(span,), cures=(f"f{number}",), branch=branch)


BRANCH = candidate(1, "if y.sum() > 0:\n    y = y + 1", WHERE, Span(5, 7), branch=True)
READ = candidate(2, "s = y.mean().item()", "s = y.mean().detach()", Span(7, 8))
SET = candidate(3, "", OPTION, Span(2, 2))


def test_two_changes_of_one_branch_both_mark_its_condition():
    other = candidate(4, "if y.sum() > 0:\n    y = y + 1", "y = y * 1", Span(5, 7), branch=True)
    text = with_conditions({"a.py": TEXT}, [BRANCH, other])["a.py"]
    assert ast.unparse(ast.parse(text)).count("dynadiag_choose__('") == 2


@pytest.mark.parametrize("order", [(BRANCH, READ, SET), (SET, READ, BRANCH)])
def test_changes_are_made_in_whatever_order_they_come(order):
    rows = changed({"a.py": TEXT}, order)["a.py"].splitlines()
    assert rows == [
        "import torch",
        OPTION,
        "",
        "def step(x):",
        "    y = x * 2",
        f"    {WHERE}",
        "    s = y.mean().detach()",
        "    return y * s",
    ]


def test_the_same_option_is_set_once():
    again = candidate(4, "", OPTION, Span(2, 2))
    assert changed({"a.py": TEXT}, [SET, again])["a.py"].count(OPTION) == 1


def test_two_changes_of_one_line_are_refused():
    with pytest.raises(EditError, match="same lines"):
        changed({"a.py": TEXT}, [READ, candidate(4, "s = y.mean().item()", "s = y.mean()", Span(7, 8))])


def test_the_condition_of_the_branch_is_marked_in_the_original():
    (text,) = with_conditions({"a.py": TEXT}, [BRANCH, READ]).values()
    assert text.splitlines()[4] == "    if dynadiag_choose__('x1', y.sum() > 0):"
    assert len(text.splitlines()) == len(TEXT.splitlines())


def test_the_first_argument_of_the_selection_is_marked_in_the_new_text():
    text = changed({"a.py": TEXT}, [SET, READ, BRANCH], marked=True)["a.py"]
    assert "y = torch.where(dynadiag_select__('x1', y.sum() > 0), y + 1, y)" in text
    ast.parse(text)


def test_a_condition_that_has_a_name_is_marked_where_it_is_computed():
    new = "taken = y.sum() > 0\ny = torch.where(taken, y + 1, y)"
    text = changed({"a.py": TEXT}, [candidate(1, "if y.sum() > 0:\n    y = y + 1", new, Span(5, 7), branch=True)], marked=True)["a.py"]
    assert "    taken = dynadiag_select__('x1', y.sum() > 0)\n    y = torch.where(taken, y + 1, y)\n" in text
