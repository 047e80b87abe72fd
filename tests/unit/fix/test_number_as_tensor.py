"""A number that is read into a name, kept as a tensor: which lines, and what else changes with them."""

from __future__ import annotations

import pytest

from dynadiag.changes.edits import applied
from dynadiag.changes.number_as_tensor import with_tensor
from dynadiag.errors import EditError


def changed(body: str) -> str:
    text = "import torch\n\n\ndef f(x, n):\n" + "".join(f"    {row}\n" for row in body.splitlines())
    for edit in with_tensor("a.py", text, 5):
        text, _ = applied(text, edit)
    return "\n".join(row[4:] for row in text.splitlines()[4:])


@pytest.mark.parametrize(
    ("body", "new"),
    [
        ("b = x.max().item()\nreturn torch.tensor(b / n)", "b = x.max().detach()\nreturn torch.as_tensor(b / n)"),
        ("b = float(x)\nreturn b * 2", "b = x.detach().clone()\nreturn b * 2"),
        ("b = (x + 1).item()\nreturn torch.tensor(n)", "b = (x + 1).detach().clone()\nreturn torch.tensor(n)"),
    ],
)
def test_what_is_kept(body: str, new: str) -> None:
    assert changed(body) == new


@pytest.mark.parametrize("body", ["b = n / x.item()", "b = x.item()\nreturn n / b", "b, c = x.item(), 1", "return x.item()", "b = n"])
def test_other_lines_are_left(body: str) -> None:
    with pytest.raises(EditError):
        changed(body)
