"""Which sizes may be marked as dynamic, from the shapes of the calls that were compiled."""

import pytest

from dynadiag.passes.recompile_rows import varying_sizes

BOTH = (("x", 0), ("x", 1))


@pytest.mark.parametrize(
    ("shapes", "varying"),
    [
        ([(4, 10), (4, 16)], (("x", 1),)),
        ([(4, 10), (4, 16), (2, 12)], BOTH),
        ([(4, 10), (4, 16), (2, 12), (1, 12)], BOTH),  # the call with one row has its own version, marked or not
        ([(1, 10), (4, 16), (2, 12)], ()),  # the first version is for one row only
        ([(4, 10), (4, 16, 1)], ()),
    ],
)
def test_a_size_of_one_rules_out_a_mark_only_in_the_first_call(builders, shapes, varying):
    frames = builders.recompiled(*[["0/0: k == 1"]] * (len(shapes) - 1)).frames
    assert varying_sizes(frames, (), {frame.id: {"x": shape} for frame, shape in zip(frames, shapes, strict=True)}) == varying
