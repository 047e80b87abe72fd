"""Loops whose turns or sizes are in the data: over the numbers that a tensor was made of, or as one operator; and what is refused."""

from __future__ import annotations

import ast

import pytest

from dynadiag.changes.edits import applied
from dynadiag.changes.number_loops import with_numbers
from dynadiag.changes.operator import as_operator
from dynadiag.errors import EditError

SIZES = """import torch


def grid(sizes, scale):
    begin = 0
    for level, (height, width) in enumerate(sizes):  # of all
        rows = torch.linspace(0, height - 1, height) / (scale[:, level, None] * height)
        begin += height * width
    return rows[:, begin:]


def step(pairs, scale):
    sizes = torch.as_tensor(pairs, dtype=torch.long)
    return grid(sizes, scale)
"""
PLACES = """import torch


def marks(x, scale: int):
    places = torch.nonzero(x)
    # where they go
    same = torch.zeros(x.shape, device=x.device)
    last = 0
    for i in range(places.shape[0]):
        if (places[i, 0] == 0) or scale > 2:
            same[last] = 1
        last = places[i, 0]
    return same
"""


def row_of(text: str, begin: str) -> int:
    return next(number for number, line in enumerate(text.splitlines(), start=1) if line.strip().startswith(begin))


def numbers_of(text: str) -> str:
    for edit in with_numbers("/m.py", text, row_of(text, "rows =")):
        text, _ = applied(text, edit)
    return text


def operator_of(text: str, begin: str = "places =") -> str:
    for edit in as_operator("/m.py", text, row_of(text, begin)):
        text, _ = applied(text, edit)
    return text


def test_a_loop_runs_over_the_numbers_beside_a_tensor():
    changed = numbers_of(SIZES)
    assert '    for level, (height, width) in enumerate(getattr(sizes, "dynadiag_numbers", sizes)):  # of all\n' in changed
    assert (
        "    sizes = torch.as_tensor(pairs, dtype=torch.long)\n    if isinstance(pairs, (list, tuple)):\n"
        "        sizes.dynadiag_numbers = [[int(n) for n in one] for one in pairs]\n" in changed
    )
    flat = SIZES.replace("(height, width)", "height").replace("height * width", "height")
    assert "sizes.dynadiag_numbers = [int(n) for n in pairs]" in numbers_of(flat)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("dtype=torch.long", "dtype=torch.float32", "no line is known"),
        ("torch.as_tensor(pairs, dtype=torch.long)", "scale.long()", "no line is known"),
        ("enumerate(sizes):", "enumerate(sizes + 1):", "in no loop over the rows"),
        ("begin += height * width", "begin += 1 / height", "raises an error for a number|may do something else"),
        ("begin += height * width", "begin += 5 % height", "may do something else"),
        ("begin += height * width", "height += 1", "may write `sizes`"),
        ("begin += height * width", "begin += height.item()", "may do something else"),
        ("begin += height * width", "keep(height)", "may do something else"),
        ("begin += height * width", "begin = torch.roll(height, 1)", "may do something else"),
        ("begin += height * width", "begin = ~(height > 3)", "may do something else"),
        ("begin += height * width", "words = f'{height}'", "may do something else"),
        ("    return grid(", "    other = sizes.view(-1)\n    other[0] = 7\n    return grid(", "may write `sizes`"),
        ("    return grid(", "    torch.add(sizes, 1, out=sizes)\n    return grid(", "may write `sizes`"),
        ("    return grid(", "    for one in sizes:\n        one.mul_(2)\n    return grid(", "may write `sizes`"),
    ],
)
def test_what_is_another_thing_with_numbers_is_refused(old, new, why):
    assert old in SIZES
    with pytest.raises(EditError, match=why):
        numbers_of(SIZES.replace(old, new))


def test_lines_that_depend_on_data_become_an_operator_and_stay_for_all_other_cases():
    changed = operator_of(PLACES)
    assert changed == operator_of(PLACES, "if (places")
    function = next(one for one in ast.parse(changed).body if isinstance(one, ast.FunctionDef) and one.name == "marks")
    made, branch, last = function.body
    assert ast.unparse(made) == "same = torch.zeros(x.shape, device=x.device)" and ast.unparse(last) == "return same"
    assert isinstance(branch, ast.If)
    assert "torch.compiler.is_dynamo_compiling()" in ast.unparse(branch.test) and "requires_grad" in ast.unparse(branch.test)
    assert "isinstance(scale, int)" in ast.unparse(branch.test)
    before = next(one for one in ast.parse(PLACES).body if isinstance(one, ast.FunctionDef))
    assert [ast.unparse(one) for one in branch.orelse] == [ast.unparse(before.body[at]) for at in (0, 2, 3)]
    assert '    schema="(Tensor x, SymInt scale, Tensor(a!) same) -> ()",\n' in changed or "Tensor(a!) same" in changed
    assert "    # where they go\n" in changed


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("torch.zeros(x.shape, device=x.device)", "x.view(-1)", "not known to be a new tensor"),
        ("torch.zeros(x.shape, device=x.device)", "x", "not known to be a new tensor"),
        ("same[last] = 1", "x[last] = 1", "`x` is written"),
        ("same[last] = 1", "same[last] = torch.rand(1)", "may do more than compute"),
        ("same[last] = 1", "same[last] = self.weight", "use `self`"),
        ("same[last] = 1", "same[last] = helper(x)", "may do more than compute"),
        ("same[last] = 1", "same[last] = (x @ x).max()", "may do more than compute|autocast"),
        ("same[last] = 1", "same[last] = torch.ones(1)", "names no device"),
        ("        last = places[i, 0]", "        place = places[i, 0]\n        place += 1\n        last = place", "may write a tensor"),
        ("same[last] = 1", "self.seen = 1", "does more than assign names"),
        ("same[last] = 1", "raise ValueError(last)", "does more than write"),
        ("return same", "return same, last", "`last` is used after"),
        ("return same", "return same * places.sum()", "`places` is used after"),
        ("def marks(x, scale: int):", "def marks(x, scale: int):\n    global last", "another scope"),
    ],
)
def test_lines_that_do_more_than_write_into_a_new_tensor_are_refused(old, new, why):
    assert old in PLACES
    with pytest.raises(EditError, match=why):
        operator_of(PLACES.replace(old, new))


def test_what_may_share_memory_with_what_is_written_is_refused():
    text = PLACES.replace("    last = 0\n", "    last = 0\n    view = same[1:]\n").replace("same[last] = 1", "same[last] = view[0]")
    with pytest.raises(EditError, match="may share memory with `same`"):
        operator_of(text)


@pytest.mark.parametrize("write", ["th.flatten(sizes).add_(1)", "flat(sizes).add_(1)"])
def test_a_loop_over_numbers_does_not_depend_on_the_name_of_torch(write):
    renamed = SIZES.replace("import torch\n", "import torch as th\nfrom torch import flatten as flat\n").replace("torch.", "th.")
    assert "dynadiag_numbers" in numbers_of(renamed)
    with pytest.raises(EditError, match="may write `sizes`"):
        numbers_of(renamed.replace("    begin = 0\n", f"    {write}\n    begin = 0\n"))


def test_an_operator_is_made_of_the_same_lines_whatever_torch_is_called():
    renamed = PLACES.replace("import torch", "import torch as th").replace("torch.", "th.")
    changed, plain = operator_of(renamed), operator_of(PLACES)
    assert "    places = th.nonzero(x)\n" in changed
    assert changed.count("custom_op") == plain.count("custom_op") and changed.count("th.nonzero(x)") == plain.count("torch.nonzero(x)")
