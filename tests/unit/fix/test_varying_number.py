"""A float that varies, given as a tensor: at which calls, and where it stays a number."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dynadiag.changes.edits import applied
from dynadiag.changes.varying_number import as_tensors, is_float, names_in_state
from dynadiag.errors import EditError

CALLS = """import torch

def step(x, t, dt=0.1):
    return x + dt * t

def run(x):
    t = 0.0
    while t < 1.0:
        x = step(x, t, dt=t / 2)
        t += 0.1
    return step(
        x,
        t,
    )
"""


def changed(text: str, names: list[str], *, observed: bool = False) -> str:
    for edit in sorted(as_tensors("a.py", text, "step", 3, names, "number"), key=lambda edit: -(edit.near or 0)):
        text, _ = applied(text, replace(edit, new=edit.observed or ()) if observed else edit)
    return text


def test_arguments_are_tensors_at_all_calls():
    new = changed(CALLS, ["t", "dt"])
    assert "        x = step(x, torch.tensor(t, dtype=torch.float64), dt=torch.tensor(t / 2, dtype=torch.float64))\n" in new
    assert "    return step(\n        x,\n        torch.tensor(t, dtype=torch.float64),\n    )\n" in new
    assert new.count("torch.tensor(") == 3


def test_a_proof_knows_which_tensors_are_numbers_of_the_original():
    assert "x = step(x, number(t), dt=t / 2)" in changed(CALLS, ["t"], observed=True)
    assert names_in_state(CALLS, "step", 3, ["t"]) == ("t", "arguments[1]")


@pytest.mark.parametrize(
    "text",
    [
        CALLS.replace("step(x, t, dt=t / 2)", "step(*[x, t])"),
        CALLS.replace("dt * t", "dt / t"),
        CALLS.replace("dt * t", "t ** dt"),
        CALLS.replace("dt=t / 2)", 'note="""a\nb""")'),
        CALLS.replace("def step(x, t", "def step(x, s"),
    ],
)
def test_what_the_file_does_not_show_or_python_refuses_is_left(text: str) -> None:
    with pytest.raises(EditError):
        as_tensors("a.py", text, "step", 3, ["t", "dt"] if "dt / t" in text else ["t"], "number")


@pytest.mark.parametrize(("values", "is_one"), [(("0.5", "1.0"), True), (("1", "2"), False), (("True", "0.5"), False), ((), False)])
def test_integers_stay_numbers(values: tuple[str, ...], is_one: bool) -> None:
    assert is_float(values) == is_one
