"""What stands behind what is cured: edits on the texts of the changed program, their lines, and how proofs make them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dynadiag.changes.change import Candidate
from dynadiag.changes.edits import Edit, placed
from dynadiag.errors import EditError
from dynadiag.fix import texts
from dynadiag.fix.layers import _as_observed, _merged, own_row
from dynadiag.fix.moves import PROOF_NAMES

FILE = "/train.py"
OWN = "import torch\n\nf = torch.compile(step)\na = 1\nb = 2\n"
PLAIN = "g = torch.compile(inner)"
OBSERVED = f"g = torch.compile(inner, {PROOF_NAMES.apart}=True)"
REGION = Edit(
    file=FILE,
    old=("f = torch.compile(step)",),
    new=(PLAIN, "f = step"),
    observed=(OBSERVED, f"f = {PROOF_NAMES.watch}(step)"),
    near=3,
)


def candidate(edit: Edit, text: str, **more: object) -> Candidate:
    made = Candidate(id="x1", slug="s", text="", edits=(edit,), spans=(placed(text, edit),), cures=("f",))
    return replace(made, **more)  # type: ignore[arg-type]


BASE = candidate(REGION, OWN)
NOW = texts.changed({FILE: OWN}, [BASE])[FILE]


def test_an_edit_is_of_the_text_that_the_layers_before_it_made() -> None:
    edit = Edit(file=FILE, old=("b = 2",), new=("b = 3",), near=6)
    top = candidate(edit, NOW, layer=1, rows=(5,))
    assert texts.changed({FILE: OWN}, [BASE, top])[FILE].splitlines()[2:] == [PLAIN, "f = step", "a = 1", "b = 3"]
    with pytest.raises(EditError):
        texts.changed({FILE: OWN}, [candidate(Edit(file=FILE, old=(PLAIN,), new=("g = inner",), near=3), NOW, layer=1)])


@pytest.mark.parametrize(("row", "own"), [(1, 1), (3, 3), (5, 4), (6, 5)])
def test_lines_are_those_of_the_users_file(row: int, own: int) -> None:
    assert own_row(OWN, NOW, row) == own


def test_proofs_change_a_line_that_they_have_otherwise() -> None:
    new = "g = torch.compile(inner, dynamic=True)"
    top = _as_observed(Edit(file=FILE, old=(PLAIN,), new=(new,), near=3), [BASE])
    assert (top.seen, top.observed) == ((OBSERVED,), (f"g = torch.compile(inner, dynamic=True, {PROOF_NAMES.apart}=True)",))
    both = [BASE, candidate(top, NOW, layer=1)]
    assert new in texts.changed({FILE: OWN}, both)[FILE]
    assert top.observed[0] in texts.changed({FILE: OWN}, both, observed=True)[FILE]


def test_a_region_within_a_region_is_not_watched_twice() -> None:
    inner = Edit(file=FILE, old=(PLAIN,), new=("m.compile()", "g = inner"), observed=("m.compile()", f"g = {PROOF_NAMES.watch}(inner)"))
    assert _as_observed(inner, [BASE]).observed == ("m.compile()", "g = inner")


def test_a_row_that_is_written_anew_is_not_merged() -> None:
    assert _merged("f(a)", "f(a, b=1)", "f(a)") == "f(a, b=1)"
    with pytest.raises(EditError):
        _merged("f(a)", "f(a, b=1)", "g(a)")
