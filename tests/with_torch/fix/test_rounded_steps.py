"""What an optimizer makes of rounding: the last run of `fix` has the script's own back end, which rounds in other places than eager."""

import pytest
import torch

from dynadiag.fix.inside.judging import PROGRAM, first_difference
from dynadiag.fix.inside.judging_edits import compared_with_edit

pytestmark = pytest.mark.any_torch
STEP = 0.001
RESULT = ("output", "the result", "a tuple")


def run(later):
    """Two calls of one callable, which is given a weight before and after an optimizer's step."""

    def noted(value):
        return {"tensor": value, "device": "cpu", "requires_grad": True, "layout": "torch.strided"}

    begun = torch.linspace(-1, 1, 1000)
    return [
        *(
            {"callee": "1 Net", "number": number, "before": [("given", "step.weight", noted(value))], "after": [RESULT], "gradients": []}
            for number, value in ((1, begun), (2, begun + later))
        ),
        {"callee": "1 Net", "number": 0, "after": [("at the end", "step.weight", noted(begun + later))]},
        {"callee": PROGRAM, "number": 0, "after": [("parameter", "0 (Linear.weight)", noted(begun + later))]},
    ]


def stepped(flipped=0, factor=1.0):
    steps = torch.full((1000,), -STEP) * factor
    steps[:flipped] *= -1
    return steps


@pytest.mark.parametrize(
    ("other", "accepted"),
    [
        (stepped(flipped=3), True),  # gradients of rounding alone: whole steps, of some elements
        (stepped(flipped=700), False),  # another gradient
        (stepped(factor=1.5), False),  # another learning rate
        (stepped() + 0.01 * (torch.arange(1000) == 5), False),  # farther than any step
        (stepped() * float("nan"), False),
    ],
)
def test_only_steps_on_rounding_are_accepted_of_another_back_end(other, accepted):
    found = first_difference(run(stepped())[:-1], run(other)[:-1], rounds=True)
    assert (found is None) is accepted
    assert first_difference(run(stepped()), run(other)) is not None
    assert (compared_with_edit(run(stepped()), run(other), rounds=True).difference is None) is accepted
    assert compared_with_edit(run(stepped()), run(other)).difference is not None
