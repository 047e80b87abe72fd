"""Compile time in parts that do not overlap, caches, restarts, and the rules for findings."""

from dataclasses import replace

import pytest

from dynadiag.model.compiled import CacheEvent
from dynadiag.model.run import BreakEvent, CompileMetrics, Phase, Run, RunInfo
from dynadiag.passes.find_compile_time import find_compile_time, phase_layer


def run_of(builders, *metrics, caches=(), phases=()):
    frames = tuple(builders.replace(builders.frame(i, code=i, name=f"f{i}", line=10 + i), metrics=one) for i, one in enumerate(metrics))
    return Run(info=RunInfo(), frames=frames, caches=tuple(caches), phases=tuple(phases))


def test_torchs_nested_seconds_become_parts_that_add_up(builders):
    metrics = CompileMetrics(total_s=10.0, aot_s=8.0, inductor_s=5.0, backward_s=3.0, before_restart_s=0.5)
    time = find_compile_time(run_of(builders, metrics)).compile_time
    assert time.phases == {"dynamo": 2.0, "AOTAutograd": 3.0, "inductor": 5.0, "backward": 3.0}
    assert time.total_s == sum(time.phases.values()) == 13.0
    assert time.thrown_away_s == 0.5
    assert time.frames[0].total_s == 13.0


def test_a_warm_cache_leaves_out_the_back_end(builders):
    caches = [CacheEvent(frame="f0", cache="fx_graph", result="hit"), CacheEvent(frame="f0", cache="fx_graph", result="miss")]
    time = find_compile_time(run_of(builders, CompileMetrics(total_s=2.0, aot_s=0.5), caches=caches)).compile_time
    assert time.phases == {"dynamo": 1.5, "AOTAutograd": 0.5}
    assert time.caches == {"fx_graph": {"hit": 1, "miss": 1}}
    assert time.frames[0].caches == {"fx_graph": "hit, miss"}


def test_frames_that_were_cut_short_take_their_time_from_the_events(builders):
    phases = [
        Phase(frame="f0", name="bytecode_tracing", total_s=2.0, self_s=2.0, count=1),
        Phase(frame="f0", name="create_aot_dispatcher_function", total_s=5.0, self_s=1.0, count=1),
        Phase(frame="f0", name="inductor_compile", total_s=4.0, self_s=4.0, count=1),
    ]
    time = find_compile_time(run_of(builders, None, phases=phases)).compile_time
    assert time.phases == {"dynamo": 2.0, "AOTAutograd": 1.0, "inductor": 4.0}
    assert time.total_s == 7.0
    assert time.thrown_away_s is None


def event(name):
    return Phase(frame="f0", name=name, total_s=0.5, self_s=0.5, count=1)


@pytest.mark.parametrize(
    ("inside", "layer"),
    [
        (["build_guards"], "backend"),
        (["build_guards", "create_aot_dispatcher_function"], "AOTAutograd"),
        (["build_guards", "AOTAutogradCache.inductor_load"], "AOTAutograd"),
    ],
)
def test_a_backend_without_autograd_is_not_called_autograd(builders, inside, layer):
    """torch 2.15 counts the time of `backend="eager"` under `aot_autograd_cumulative_compile_time_us`."""
    events = [event(name) for name in ["backend_compile", *inside]]
    time = find_compile_time(run_of(builders, CompileMetrics(total_s=2.0, aot_s=0.5), phases=events)).compile_time
    assert time.phases == {"dynamo": 1.5, layer: 0.5}


def test_what_is_not_known_is_null_with_a_reason(builders):
    nothing = find_compile_time(Run(info=RunInfo())).compile_time
    assert (nothing.total_s, nothing.why) == (None, "nothing was compiled")
    untimed = find_compile_time(run_of(builders, None)).compile_time
    assert (untimed.total_s, untimed.why) == (None, "no compilation was timed in this log")
    part = find_compile_time(run_of(builders, CompileMetrics(total_s=1.0), None)).compile_time
    assert part.total_s == 1.0
    assert "1 frame of 2 could not be timed" in part.why


@pytest.mark.parametrize(
    ("name", "layer"),
    [
        ("compile_attempt_1", "dynamo"),
        ("build_guards", "dynamo"),
        ("aot_trace_joint_graph", "AOTAutograd"),
        ("GraphLowering.run", "inductor"),
        ("entire_backward_compile", "backward"),
        ("compile_fx.<locals>.bw_compiler", "backward"),
    ],
)
def test_layers_of_events(name, layer):
    assert phase_layer(name) == layer


def codes(result):
    return [finding.code for finding in result.findings]


def test_restarts_are_a_finding_when_they_cost_a_fifth(builders):
    lost = CompileMetrics(total_s=10.0, before_restart_s=4.0, restart_reasons=("Graph break in the middle\nmore",))
    result = find_compile_time(run_of(builders, lost))
    assert codes(result) == ["DC01"]
    assert result.findings[0].title == "Restarts threw away 4.0 s of compile time"
    assert "Graph break in the middle" in result.findings[0].why
    assert codes(find_compile_time(run_of(builders, CompileMetrics(total_s=10.0, before_restart_s=1.9)))) == []
    assert codes(find_compile_time(run_of(builders, CompileMetrics(total_s=29.0, before_restart_s=4.0)))) == []


def test_the_whole_time_of_a_failed_frame_is_no_restart(builders):
    """torch sets the same field for it (`_compile` in `_dynamo/convert_frame.py`)."""
    failed = CompileMetrics(total_s=10.0, before_restart_s=9.9, fail_type="InductorError")
    result = find_compile_time(run_of(builders, failed))
    assert (codes(result), result.compile_time.thrown_away_s) == ([], None)


def test_restarts_without_a_break_are_not_blamed_on_one(builders):
    lost = CompileMetrics(total_s=10.0, before_restart_s=4.0, restart_reasons=("a float became an input",))
    (finding,) = find_compile_time(run_of(builders, lost)).findings
    assert "a float became an input" in finding.why
    assert "break" not in finding.why


def test_restarts_of_frames_that_broke_are_said_to_go_with_the_break(builders):
    run = run_of(builders, CompileMetrics(total_s=10.0, before_restart_s=4.0), CompileMetrics(total_s=1.0, before_restart_s=0.5))
    broke = BreakEvent(
        frame=run.frames[0].id, attempt=0, gb_id=None, gb_type="print", explanation=None, hints=(), context=None, stack=(), torch_frame=None
    )
    (finding,) = (one for one in find_compile_time(replace(run, breaks=(broke,))).findings if one.code == "DC01")
    assert (
        "1 of these frames broke the graph, and Dynamo restarts a frame at each break: without the break, that time would be saved."
        in finding.why
    )


def test_a_restart_that_is_no_break_is_named_by_its_class_and_not_counted_as_one(builders):
    again = ("<class 'torch._dynamo.exc.TensorifyScalarRestartAnalysis'>",)
    lost = CompileMetrics(total_s=10.0, before_restart_s=4.0, restart_reasons=again)
    run = run_of(builders, lost, CompileMetrics(total_s=1.0, before_restart_s=0.5, restart_reasons=("Dynamic shape operator",)))
    broke = BreakEvent(
        frame="", attempt=0, gb_id=None, gb_type="print", explanation=None, hints=(), context=None, stack=(), torch_frame=None
    )
    breaks = tuple(replace(broke, frame=one.id) for one in run.frames)
    (finding,) = (one for one in find_compile_time(replace(run, breaks=breaks)).findings if one.code == "DC01")
    assert "reasons: `TensorifyScalarRestartAnalysis`, Dynamic shape operator. 1 of these frames broke the graph" in finding.why


def test_a_function_is_slow_when_it_is_long_and_a_large_part(builders):
    result = find_compile_time(run_of(builders, CompileMetrics(total_s=40.0, aot_s=30.0), CompileMetrics(total_s=20.0)))
    assert codes(result) == ["DC02"]
    assert result.findings[0].title == "Compiling `f0` took 40.0 s"
    entry = replace(
        result_of := run_of(builders, CompileMetrics(total_s=40.0)),
        frames=(replace(result_of.frames[0], file="/torch/_dynamo/external_utils.py"),),
    )
    assert find_compile_time(entry).findings[0].title == "Compiling the compiled module or callable took 40.0 s"  # torch's own `inner`
    assert "AOTAutograd 30.0 s, dynamo 10.0 s" in result.findings[0].why
    assert codes(find_compile_time(run_of(builders, CompileMetrics(total_s=25.0)))) == []
    small_part = find_compile_time(run_of(builders, *[CompileMetrics(total_s=35.0)] * 5))
    assert codes(small_part) == []


def test_what_no_cache_keeps_is_said(builders):
    bypass = CacheEvent(frame="f0", cache="fx_graph", result="bypass", why="a custom op without a hash")
    result = find_compile_time(run_of(builders, CompileMetrics(total_s=12.0), caches=[bypass]))
    assert codes(result) == ["DC03"]
    assert "a custom op without a hash" in result.findings[0].why
    other = CacheEvent(frame="f0", cache="aotautograd", result="miss")
    assert codes(find_compile_time(run_of(builders, CompileMetrics(total_s=12.0), caches=[bypass, other]))) == []
    run = run_of(builders, CompileMetrics(total_s=12.0), caches=[bypass])
    assert codes(find_compile_time(replace(run, frames=(replace(run.frames[0], outcome="failed"),)))) == []
