"""Copies that share memory as their originals do, and what counts as a difference."""

from __future__ import annotations

import pytest
import torch

from dynadiag.compare.aliasing import alias_pattern, bytes_of, snapshot
from dynadiag.compare.judge import Runs
from dynadiag.compare.live.comparing import compare, compare_sharing


def kinds(eager, compiled, **options):
    return [one.kind for one in compare([eager], [compiled], ["x"], where="output", **options)]


def test_a_snapshot_shares_memory_as_the_original():
    base = torch.arange(8.0)
    values = [base, base[:4], base[2:6], base[6:], torch.ones(2), base, 3]
    copies = snapshot(values)
    pattern = ((0, 1, "overlap"), (0, 2, "overlap"), (0, 3, "overlap"), (0, 5, "same tensor"), (1, 2, "overlap"), (1, 3, "one storage"))
    assert alias_pattern(values)[:6] == pattern
    assert alias_pattern(copies) == alias_pattern(values)
    assert all(torch.equal(one, other) for one, other in zip(values[:6], copies[:6], strict=True))
    assert copies[6] == 3
    assert copies[0].data_ptr() != base.data_ptr()
    assert bytes_of(values) == 8 * 4 + 2 * 4


def test_a_snapshot_keeps_what_autograd_knows():
    leaf = torch.ones(2, requires_grad=True)
    computed = leaf * 2
    copies = snapshot([leaf, computed, torch.ones(2)])
    assert [one.requires_grad for one in copies] == [True, True, False]
    assert [one.is_leaf for one in copies] == [True, False, True]
    copies[1].add_(1)
    assert computed.tolist() == [2, 2]


def test_strides_and_sizes_stay():
    value = torch.arange(24.0).view(2, 3, 4).permute(2, 0, 1)[1:]
    copy = snapshot([value])[0]
    assert (copy.shape, copy.stride(), copy.storage_offset()) == (value.shape, value.stride(), value.storage_offset())


@pytest.mark.parametrize(
    ("compiled", "expected"),
    [
        (torch.ones(2, 3), []),
        (torch.ones(2, 3) * (1 + 1e-5), []),
        (torch.ones(2, 3) + 0.1, ["value"]),
        (torch.ones(3, 2), ["shape"]),
        (torch.ones(3, 2).t(), ["stride"]),
        (torch.ones(2, 3, dtype=torch.float64), ["dtype"]),
        (torch.ones(2, 3, requires_grad=True), ["requires_grad"]),
        (torch.full((2, 3), float("nan")), ["value"]),
        (None, ["missing"]),
    ],
)
def test_each_kind_of_difference(compiled, expected):
    assert kinds(torch.ones(2, 3), compiled) == expected


def test_one_wrong_element_among_many_is_found_and_named():
    eager = torch.randn(1000, 100)
    compiled = eager.clone()
    compiled[700, 3] += 1
    found = compare([eager], [compiled], ["y"], where="output")
    assert [(one.name, one.wrong_elements, one.first_wrong, one.elements) for one in found] == [("y", 1, (700, 3), 100_000)]
    assert found[0].largest == pytest.approx(1, rel=1e-3)


def test_what_eager_itself_cannot_decide_is_no_difference():
    eager = torch.tensor([1.0, 2.0, 1e-3])
    compiled = torch.tensor([1.0, 2.0, 0.2])
    assert kinds(eager, compiled) == ["value"]
    assert kinds(eager, compiled, anchors=lambda: Runs(further=[[torch.tensor([1.0, 2.0, 0.1])]])) == []
    assert kinds(eager, compiled, anchors=lambda: Runs(exact=[eager.double()])) == ["value"]
    chosen, other = torch.tensor([3]), torch.tensor([5])
    assert kinds(chosen, other) == ["value"]
    assert kinds(chosen, other, anchors=lambda: Runs(further=[[torch.tensor([4])]])) == []


def test_the_tolerance_is_that_of_the_coarsest_dtype():
    eager, compiled = torch.ones(4), torch.ones(4) * 1.0015
    assert kinds(eager, compiled) == ["value"]
    assert kinds(eager, compiled, coarsest=torch.bfloat16) == []


def test_infinities_must_agree():
    eager = torch.tensor([float("inf"), 1.0, float("nan")])
    assert kinds(eager, eager.clone()) == []
    assert kinds(eager, torch.tensor([float("-inf"), 1.0, float("nan")])) == ["value"]
    assert kinds(eager, torch.tensor([float("-inf"), 1.0, float("nan")]), anchors=lambda: Runs(exact=[eager.double()])) == ["value"]
    assert (
        kinds(eager, torch.tensor([2.0, 1.0, float("nan")]), anchors=lambda: Runs(further=[[torch.tensor([2.0, 1.0, float("nan")])]])) == []
    )


def test_infinities_and_nan_of_complex_numbers_are_told_by_their_parts():
    eager = torch.tensor([complex(1, float("nan")), complex(float("inf"), 1), 1j])
    assert kinds(eager, eager.clone()) == []
    nan, infinite, other = eager.tolist()
    for wrong in (complex(1, 1), complex(1, float("inf"))):
        assert kinds(eager, torch.tensor([wrong, infinite, other])) == ["value"]
    assert kinds(eager, torch.tensor([nan, complex(1, float("inf")), other])) == ["value"]
    assert kinds(eager, torch.tensor([complex(float("nan"), 2), infinite, other])) == []


def test_values_that_are_random_are_left_out_but_not_their_sizes():
    assert kinds(torch.ones(2), torch.zeros(2), no_values=frozenset({0})) == []
    assert kinds(torch.ones(2), torch.zeros(3), no_values=frozenset({0})) == ["shape"]


def test_an_output_that_is_a_copy_instead_of_an_alias():
    x = torch.ones(4)
    found = compare_sharing(([x.view(2, 2)], [x]), ([x.clone().view(2, 2)], [x]), ["L['x']"])
    assert [(one.kind, one.name, one.eager, one.compiled) for one in found] == [
        ("alias", "L['x']", "overlapping memory", "separate memory")
    ]
    assert compare_sharing(([x, x], [x]), ([x, x], [x]), ["L['x']"]) == ()
    assert [one.name for one in compare_sharing(([x[:1], x[:2]], []), ([x[:1], x[:2].clone()], []), [])] == ["output 1"]
    assert compare_sharing(([x[:1], x[1:]], []), ([x[:1], x[1:].clone()], []), []) == ()
    assert compare_sharing(([x], [x]), ([x.view(4)], [x]), ["L['x']"]) == ()


def test_many_views_of_one_buffer_cost_no_pair_each():
    base = torch.zeros(4000)
    views = [base[number : number + 1] for number in range(0, 4000, 2)]
    assert alias_pattern(views) == ()
    assert alias_pattern([*views, base[3:5]]) == ((2, 2000, "overlap"),)
