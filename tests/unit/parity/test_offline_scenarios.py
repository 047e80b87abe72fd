"""Which calls are planned for a graph, from what is known of its inputs."""

from types import SimpleNamespace

import pytest

from dynadiag.parity.scenarios import MOST_PAIRS, Pair, make_plan


def tensor(name, source="", **changes):
    known = {
        "name": name,
        "kind": "tensor",
        "source": source if source is None else source or f"L['{name}']",
        "shape": (4,),
        "stride": (1,),
        "dtype": "float32",
        "device": "cpu",
        "storage": None,
        "requires_grad": False,
        "static": None,
        "subclass": None,
    }
    return SimpleNamespace(**known | changes)


def plan(inputs, written, frame="fn", caches=False):
    return make_plan(inputs, frozenset(written), frame=frame, caches=caches)


def kinds(made):
    return [one.kind for one in made.scenarios]


def reason(made, kind):
    return "; ".join(one.reason for one in made.skipped if one.kind == kind)


def test_a_written_argument_is_overlapped_with_another_in_both_orders():
    made = plan([tensor("x"), tensor("y")], {"y"})
    assert [(one.kind, one.calls, one.pair) for one in made.scenarios] == [
        ("second_call", ("recorded", "recorded"), None),
        ("same_tensor", ("recorded", "same"), Pair(1, 0)),
        ("overlap_later", ("recorded", "overlap"), Pair(1, 0)),
        ("overlap_first", ("overlap", "recorded"), Pair(1, 0)),
    ]


def test_inputs_that_nobody_writes_are_only_passed_twice():
    made = plan([tensor("x"), tensor("y")], set())
    assert kinds(made) == ["second_call", "same_tensor"]
    assert "no input is written" in reason(made, "overlap_later")


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (tensor("y", static="guarded"), "tensors of a module"),
        (tensor("y", requires_grad=True), "require grad"),
        (tensor("y", shape=(0,)), "empty inputs"),
        (tensor("y", subclass="DTensor"), "tensor subclasses"),
        (tensor("y", dtype="int64"), "dtype"),
    ],
)
def test_what_a_caller_would_not_overlap_is_not_overlapped(other, why):
    for written in ("x", "y"):
        made = plan([tensor("x"), other], {written})
        assert kinds(made) == ["second_call"]
    assert why in reason(made, "overlap_later")


def test_a_number_in_a_tensor_may_be_an_element_of_another():
    assert "overlap_later" in kinds(plan([tensor("x"), tensor("n", shape=(), stride=())], {"x"}))


def test_two_attributes_are_not_overlapped_but_an_attribute_and_an_argument_are():
    attributes = [tensor("a", "L['self'].a"), tensor("b", "L['self'].b")]
    assert kinds(plan(attributes, {"a"})) == ["second_call"]
    assert "overlap_later" in kinds(plan([attributes[0], tensor("x")], {"a"}))


@pytest.mark.parametrize("changes", [{"dtype": "int64"}, {"shape": (1,)}])
def test_a_counter_that_an_object_keeps_is_not_overlapped(changes):
    kept, argument = tensor("n", "L['cache'].length", **changes), tensor("x", **changes)
    assert kinds(plan([kept, argument], {"n"})) == ["second_call"]


def test_values_kept_on_the_stack_across_a_break_are_no_arguments():
    assert kinds(plan([tensor("a", "L['___stack0']"), tensor("b", "L['___stack1']")], {"a"})) == ["second_call"]


def test_code_behind_a_graph_break_gets_no_other_inputs():
    made = plan([tensor("x"), tensor("y")], {"x"}, frame="torch_dynamo_resume_in_fn_at_4")
    assert kinds(made) == ["second_call"]
    assert "graph break" in reason(made, "overlap_later")
    assert "graph break" in reason(made, "same_tensor")


def test_inputs_that_share_memory_already_are_tried_apart():
    made = plan([tensor("x", storage=0), tensor("y", storage=0)], {"x"})
    assert [(one.kind, one.calls) for one in made.scenarios][1:] == [("apart_later", ("recorded", "apart"))]


def test_pairs_that_are_left_out_are_counted():
    made = plan([tensor(f"x{number}") for number in range(4)], {"x0", "x1", "x2", "x3"})
    assert kinds(made).count("overlap_later") == MOST_PAIRS
    assert reason(made, "overlap_later") == "3 of 6 pairs of inputs were not tried"


def test_the_cache_on_disk_is_tried_where_there_is_one():
    made = plan([tensor("x"), tensor("y")], {"x"}, caches=True)
    assert [one.calls for one in made.scenarios if one.on_disk] == [("recorded", "recorded"), ("apart", "overlap")]
    assert "only inductor" in reason(plan([tensor("x")], set()), "disk_cache")


def test_names_tell_arguments_from_attributes_where_a_log_has_no_sources():
    inputs = [tensor("L_self_cache_", None), tensor("L_self_other_", None), tensor("L_x_", None)]
    pairs = [one.pair for one in plan(inputs, {"L_self_cache_"}).scenarios if one.kind == "overlap_later"]
    assert pairs == [Pair(0, 2)]
