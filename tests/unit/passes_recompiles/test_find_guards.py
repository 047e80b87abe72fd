"""The guards of frames: counts, the long and odd ones, those that failed, and when a slow check is a finding."""

import pytest

from dynadiag.model.run import CompileMetrics, Guard, GuardSet, RegionCost
from dynadiag.passes.find_guards import chain_length, find_guards, longest_chains, oddity

PLAIN = Guard("TENSOR_MATCH", "L['x']", "check_tensor(L['x'], Tensor)")
LONG = Guard("EQUALS_MATCH", "L['self']._modules['a']._modules['b'].cfg.layers[0].scale", "L['self']...scale == 1.0")


def guarded(builders, latency, *, count=300, examples=(PLAIN,)):
    metrics = CompileMetrics(total_s=1.0, guard_latency_us=latency)
    return {"metrics": metrics, "guards": GuardSet(count=count, by_kind={"TENSOR_MATCH": count}, examples=examples)}


def profiled(builders, run, lookup, region=900.0, **known):
    """The run with what `--cost` measured of every frame."""
    common = {"process": 0, "calls": 20, "pregraph_us": 1.0, "between_us": 0.0, "how": "torch.profiler, 20 steady calls", **known}
    costs = tuple(RegionCost(frame=one.id, region=one.key.text, lookup_us=lookup, region_us=region, **common) for one in run.frames)
    return builders.replace(run, costs=costs)


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
        (LONG, "a long access path to the value"),
    ],
)
def test_what_is_odd(guard, why):
    assert oddity(guard) == why


def test_the_way_to_a_value_is_its_length():
    assert chain_length("L['x']") == 0
    assert chain_length("L['self']._modules['lin'].weight") == 3
    assert longest_chains((PLAIN, LONG)) == (LONG,)


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


def test_guards_that_cost_a_measured_share_are_a_finding(builders):
    (finding,) = find_guards(profiled(builders, builders.recompiled(**guarded(builders, 450.0)), 100.0)).findings
    assert finding.code == "DG01"
    assert finding.title == "Guards of `step`: looking up the compiled code takes 10% of the measured calls' time"
    assert "300 guards" in finding.why and "a lookup took 100 us" in finding.why
    assert (finding.cost.value, finding.cost.basis, finding.cost.remark) == (100.0, "measured", "torch.profiler, 20 steady calls")


def test_a_source_with_two_odd_guards_is_named_once(builders):
    odd = tuple(Guard(kind, "L['f'].__closure__[0].cell_contents", f"{kind} of it") for kind in ("TYPE_MATCH", "ID_MATCH"))
    run = builders.recompiled(guards=GuardSet(count=300, by_kind={"TYPE_MATCH": 300}, examples=odd))
    (finding,) = find_guards(profiled(builders, run, 100.0)).findings
    assert finding.why.count("a closure or default value") == 1


@pytest.mark.parametrize(("lookup", "count"), [(100.0, 20), (40.0, 300), (None, 300)])
def test_no_finding_for_few_guards_a_small_share_or_look_ups_that_were_not_measured(builders, lookup, count):
    run = builders.recompiled(**guarded(builders, 5000.0, count=count))
    assert find_guards(profiled(builders, run, lookup)).findings == ()


def test_torchs_own_latency_alone_is_no_finding(builders):
    result = find_guards(builders.recompiled(**guarded(builders, 5000.0)))
    assert result.findings == ()
    assert result.guards[0].latency_us == 5000.0


def test_the_share_is_that_of_the_whole_step_where_a_device_was_timed(builders):
    run = builders.recompiled(**guarded(builders, 450.0))
    assert find_guards(profiled(builders, run, 100.0, step_us=20 * 10_000.0)).findings == ()


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
    run = builders.recompiled(guards=GuardSet(count=300, by_kind={"TYPE_MATCH": 300}, on_modules=on_modules))
    run = builders.replace(run, processes=(builders.replace(run.processes[0], option_names=names),))
    (finding,) = find_guards(profiled(builders, run, 100.0)).findings
    assert [advice.slug for advice in finding.fix] == (["guard-filter", "fewer-guards"] if told else ["fewer-guards"])
    if told:
        assert finding.fix[0].text.startswith("200 of the 300 guards look at submodules")
        assert "Unsafe: torch then does not notice" in finding.fix[0].text
        assert ("if your torch has" in finding.fix[0].text) is (not names)
