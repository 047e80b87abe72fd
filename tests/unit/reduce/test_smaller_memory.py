"""Views in a smaller memory: what met there meets again, what lay apart lies apart."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynadiag.reduce.graphs.memory import View, overlaps_itself, shrunk


def places(view):
    """Where each element lies."""
    ranges = [range(size) for size in view.shape]
    return [view.offset + sum(one * step for one, step in zip(index, view.stride, strict=True)) for index in itertools.product(*ranges)]


def cut(views, most):
    return [tuple(min(size, most) for size in view.shape) for view in views]


@st.composite
def parts(draw):
    """Parts of one contiguous tensor, each with its own steps and maybe transposed."""
    sizes = draw(st.lists(st.integers(1, 9), min_size=1, max_size=3))
    strides = [1]
    for size in reversed(sizes[1:]):
        strides.insert(0, strides[0] * size)
    views = []
    for _ in range(draw(st.integers(1, 3))):
        starts = [draw(st.integers(0, size - 1)) for size in sizes]
        shape = [draw(st.integers(1, size - start)) for size, start in zip(sizes, starts, strict=True)]
        order = draw(st.permutations(range(len(sizes))))
        offset = sum(start * step for start, step in zip(starts, strides, strict=True))
        views.append(View(tuple(shape[dim] for dim in order), tuple(strides[dim] for dim in order), offset))
    return views


@given(parts(), st.integers(1, 5))
def test_parts_of_a_tensor_meet_where_they_met_and_never_elsewhere(views, most):
    small = shrunk(views, cut(views, most))
    assert small is not None and [view.shape for view in small] == cut(views, most)
    before, after = [set(places(view)) for view in views], [places(view) for view in small]
    assert all(len(set(one)) == len(one) and max(one) < view.end for one, view in zip(after, small, strict=True))
    for one, other in itertools.combinations(range(len(views)), 2):
        assert bool(before[one] & before[other]) == bool(set(after[one]) & set(after[other]))
    assert max(view.end for view in small) <= max(view.end for view in views)


@given(parts())
def test_shapes_that_stay_need_no_more_memory(views):
    small = shrunk(views, [view.shape for view in views])
    assert small is not None
    assert [len(set(places(one))) for one in small] == [len(set(places(one))) for one in views]


sizes = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 30)), max_size=4)


@given(sizes, st.integers(1, 3))
def test_any_strides_give_views_of_the_shapes_that_were_asked_for(pairs, most):
    view = View(tuple(max(size, 1) for size, _ in pairs), tuple(step for _, step in pairs), 7)
    small = shrunk([view, view], cut([view, view], most))
    assert small is not None and small[0] == small[1] and small[0].offset == 0
    assert max(places(small[0])) < small[0].end


@given(sizes)
def test_what_is_said_not_to_overlap_itself_does_not(pairs):
    shape, stride = tuple(size for size, _ in pairs), tuple(step for _, step in pairs)
    taken = places(View(shape, stride))
    assert overlaps_itself(shape, stride) or len(set(taken)) == len(taken)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (View((8, 6), (0, 1), 3), View((4, 4), (0, 1))),  # expanded
        (View((7, 4), (2, 1)), View((4, 4), (2, 1))),  # a sliding window
        (View((9, 8), (1, 1)), View((4, 4), (1, 1))),
        (View((4, 5, 4), (10, 1, 5)), View((4, 4, 4), (8, 1, 4))),  # a window over rows, two at a time
    ],
)
def test_what_overlaps_itself_does_so_in_the_same_way(old, new):
    assert shrunk([old], cut([old], 4)) == (new,)
    assert overlaps_itself(old.shape, old.stride) and overlaps_itself(new.shape, new.stride)


def test_a_part_cannot_become_larger_than_the_whole():
    assert shrunk([View((8,), (1,)), View((4,), (1,), 2)], [(2,), (4,)]) is None
