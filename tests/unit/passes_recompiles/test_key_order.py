"""Keys of a dictionary: torch guards each by its place, so that another order fails like another set."""

import pytest

from dynadiag.model.run import Guard, GuardSet
from dynadiag.passes.find_recompiles import find_recompiles


def key_guards(*keys, name="L['d']"):
    codes = [f"list(dict.keys({name}))[{at}] == {key!r}" for at, key in enumerate(keys)]
    return GuardSet(count=len(codes), by_kind={}, watched=tuple(Guard("EQUALS_MATCH", name, code) for code in codes))


def run_of(builders, *orders, at=0):
    """A function called with dictionaries of these keys; torch names the key at one place of the newest version."""
    events = [
        [f"0/{i}: list(dict.keys(d))[{at}] == {keys[at]!r}    # sum(d.values())  # train.py:12 in step"]
        for i, keys in enumerate(orders[:-1])
    ]
    run = builders.recompiled(*events)
    frames = [builders.replace(frame, guards=key_guards(*keys)) for frame, keys in zip(run.frames, orders, strict=True)]
    return builders.replace(run, frames=tuple(frames))


def test_the_same_keys_in_another_order_are_called_an_order(builders):
    found = find_recompiles(run_of(builders, "ab", "ba"))
    (finding,) = found.findings
    assert finding.title == "`step` was recompiled once because of the order of the keys of `d`"
    assert "'a', 'b' -> 'b', 'a'" in finding.why and "set of keys" not in finding.why
    assert [advice.slug for advice in finding.fix] == ["one-key-order"]
    assert [(row.kind, row.source, row.values) for row in found.transitions] == [
        ("key_order", "the order of the keys of d", ("'a', 'b'", "'b', 'a'"))
    ]
    assert [(one.old, one.new) for one in found.recompiles[0].changed] == [("'a', 'b'", "'b', 'a'")]


@pytest.mark.parametrize(("orders", "values"), [(("ab", "cb"), "'a', 'b' -> 'c', 'b'"), (("ab", "bac"), "'a', 'b' -> 'b', 'a', 'c'")])
def test_other_keys_are_called_a_set(builders, orders, values):
    (finding,) = find_recompiles(run_of(builders, *orders)).findings
    assert finding.title == "`step` was recompiled once because of `keys of d`"
    assert values in finding.why and "Each set of keys, in each order, takes its own compiled version." in finding.why
    assert finding.fix == ()


def test_the_key_that_failed_is_compared_with_the_one_at_its_own_place(builders):
    """The first guard on the keys is for another place than the one that failed."""
    run = run_of(builders, "abc", "acb", at=1)
    frames = [run.frames[0], builders.replace(run.frames[1], guards=key_guards("a", "c", "b"))]
    found = find_recompiles(builders.replace(run, frames=(builders.replace(frames[0], guards=None), frames[1])))
    assert [(one.old, one.new) for one in found.recompiles[0].changed] == [("'b'", "'c'")]


def test_keys_in_the_same_place_are_left_out_of_long_lists(builders):
    found = find_recompiles(run_of(builders, [*"abcde"], [*"abced"], at=3))
    assert [row.values for row in found.transitions] == [("..., 'd', 'e'", "..., 'e', 'd'")]


def test_without_the_guards_nothing_is_said_of_sets(builders):
    run = builders.recompiled(["0/0: list(dict.keys(d))[0] == 'a'"])
    (finding,) = find_recompiles(run).findings
    assert "Each set of keys, in each order, takes its own compiled version." in finding.why


def test_many_keys_are_told_by_the_one_that_differs(builders):
    many = [f"k{i}" for i in range(30)]
    found = find_recompiles(run_of(builders, many, many[1:] + many[:1]))
    assert [(row.kind, row.values) for row in found.transitions] == [
        ("key_order", ("'k0', 'k1', 'k2', 'k3', ...", "'k1', 'k2', 'k3', 'k4', ..."))
    ]
