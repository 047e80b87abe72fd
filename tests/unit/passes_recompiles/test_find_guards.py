"""The guards of frames: counts, the long and odd ones, those that failed, and when a slow check is a finding."""

import pytest

from dynadiag.model.run import CompileMetrics, Guard, GuardSet
from dynadiag.passes.find_guards import chain_length, dearest, find_guards, oddity

PLAIN = Guard("TENSOR_MATCH", "L['x']", "check_tensor(L['x'], Tensor)")
LONG = Guard("EQUALS_MATCH", "L['self']._modules['a']._modules['b'].cfg.layers[0].scale", "L['self']...scale == 1.0")


def guarded(builders, latency, *, count=300, examples=(PLAIN,)):
    metrics = CompileMetrics(total_s=1.0, guard_latency_us=latency)
    return {"metrics": metrics, "guards": GuardSet(count=count, by_kind={"TENSOR_MATCH": count}, examples=examples)}


@pytest.mark.parametrize(
    ("guard", "why"),
    [
        (PLAIN, None),
        (Guard("DEFAULT_DEVICE", "", "utils_device.CURRENT_DEVICE == None"), None),
        (Guard("DEFAULT_DEVICE", "", "utils_device.CURRENT_DEVICE == device(type='cuda')"), "a default device is set"),
        (Guard("EQUALS_MATCH", "G['LR']", "G['LR'] == 0.1"), "a global variable"),
        (Guard("ID_MATCH", "G['torch']", "___check_obj_id(G['torch'], 1), type=<class 'module'>"), None),
        (Guard("ID_MATCH", "L['act']", "___check_obj_id(L['act'], 1), type=<class 'function'>"), "the identity of an object"),
        (
            Guard("EQUALS_MATCH", "L['f'].__closure__[0].cell_contents", "L['f'].__closure__[0].cell_contents == 1"),
            "a closure or default value",
        ),
        (Guard("ID_MATCH", "L['f'].__code__", "___check_obj_id(L['f'].__code__, 1), type=<class 'code'>"), None),
        (LONG, "a long way to the value"),
    ],
)
def test_what_is_odd(guard, why):
    assert oddity(guard) == why


def test_the_way_to_a_value_is_its_length():
    assert chain_length("L['x']") == 0
    assert chain_length("L['self']._modules['lin'].weight") == 3
    assert dearest((PLAIN, LONG)) == (LONG,)


def test_failed_guards_stand_with_the_entry_that_they_belong_to(builders):
    run = builders.recompiled(
        ["0/0: tensor 'x' rank mismatch. expected 2, actual 1"],
        ["0/1: tensor 'x' rank mismatch. expected 1, actual 3", "0/0: tensor 'x' rank mismatch. expected 2, actual 3"],
        **guarded(builders, 20.0),
    )
    reports = find_guards(run).guards
    assert [report.frame for report in reports] == ["f0", "f1", "f2"]
    assert reports[0].failed == ("tensor 'x' rank mismatch. expected 2, actual 1", "tensor 'x' rank mismatch. expected 2, actual 3")
    assert reports[1].failed == ("tensor 'x' rank mismatch. expected 1, actual 3",)
    assert reports[2].failed == ()
    assert reports[0].count == 300
    assert reports[0].latency_us == 20.0


def test_a_slow_check_with_many_guards_is_a_finding(builders):
    finding = find_guards(builders.recompiled(**guarded(builders, 450.0))).findings[0]
    assert finding.code == "DG01"
    assert finding.title == "`step` checks 300 guards before each call, in up to 450 us"
    assert "cold CPU caches" in finding.why


def test_a_source_with_two_odd_guards_is_named_once(builders):
    odd = tuple(Guard(kind, "L['f'].__closure__[0].cell_contents", f"{kind} of it") for kind in ("TYPE_MATCH", "ID_MATCH"))
    guards = GuardSet(count=300, by_kind={"TYPE_MATCH": 300}, examples=odd)
    finding = find_guards(builders.recompiled(metrics=CompileMetrics(guard_latency_us=450.0), guards=guards)).findings[0]
    assert finding.why.count("a closure or default value") == 1


@pytest.mark.parametrize(("latency", "count"), [(450.0, 20), (150.0, 300), (None, 300)])
def test_no_finding_without_both(builders, latency, count):
    assert find_guards(builders.recompiled(**guarded(builders, latency, count=count))).findings == ()


def test_one_disturbed_measurement_is_no_finding(builders):
    run = builders.recompiled(["0/0: k == 1"], **guarded(builders, 5000.0))
    calm = builders.replace(run.frames[1], metrics=CompileMetrics(guard_latency_us=30.0))
    assert find_guards(builders.replace(run, frames=(run.frames[0], calm))).findings == ()


@pytest.mark.parametrize(
    ("on_modules", "names", "told"),
    [
        (200, {"compiler": frozenset({"skip_guard_on_inbuilt_nn_modules_unsafe"})}, True),
        (200, {}, True),
        (200, {"compiler": frozenset({"is_compiling"})}, False),
        (100, {}, False),
    ],
)
def test_torchs_filter_is_named_where_most_guards_look_at_modules(builders, on_modules, names, told):
    metrics = CompileMetrics(total_s=1.0, guard_latency_us=500.0)
    run = builders.recompiled(metrics=metrics, guards=GuardSet(count=300, by_kind={"TYPE_MATCH": 300}, on_modules=on_modules))
    run = builders.replace(run, processes=(builders.replace(run.processes[0], option_names=names),))
    (finding,) = find_guards(run).findings
    assert [advice.slug for advice in finding.fix] == (["guard-filter", "fewer-guards"] if told else ["fewer-guards"])
    if told:
        assert finding.fix[0].text.startswith("200 of the 300 guards look at submodules")
        assert "Unsafe: torch then does not notice" in finding.fix[0].text
        assert ("if your torch has" in finding.fix[0].text) is (not names)
