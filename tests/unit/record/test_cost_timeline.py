"""What `--cost` writes of the events that it profiled, and which calls it times without a profiler."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest

from dynadiag.torch_compat.trace import cost
from dynadiag.torch_compat.trace.profile_events import Event, Profiled, read_events, summarise, timeline
from dynadiag.trace.timelines import timeline_from

REGION, LAUNCH = "Torch-Compiled Region: 0/0", "cudaLaunchKernel"


def profiled(*events):
    return Profiled(events=events, threads=[1] * len(events))


def device(name, begin, end, correlation):
    return Event(name, begin, end, correlation, stream=7, on_device=True)


def test_a_timeline_holds_marks_and_what_is_asked_of_the_device():
    found = timeline(
        profiled(
            Event("dynadiag call 0 step", 1000, 1900),
            Event(REGION, 1010, 1800),
            Event("dynadiag graph", 1020, 1100),
            Event("## Call CompiledFxGraph abc ##", 1030, 1090),
            Event(LAUNCH, 1040, 1045, 1),
            Event("cudaGetDevice", 1046, 1047),
            Event(LAUNCH, 1050, 1055, 2),
            device("triton_poi_fused_add_0", 1060, 1100, 1),
            device("nvjet_tst_64x8", 1100, 1200, 2),
            Event("aten::item", 1110, 1400),
            Event("cudaStreamSynchronize", 1120, 1210),
            Event("aten::mul", 1300, 1350),
        )
    )
    read = timeline_from(found)
    assert [(span.kind, span.begin, span.end, span.name) for span in read.spans] == [
        ("call", 0, 900, "0 step"),
        ("region", 10, 800, "0/0"),
        ("graph", 20, 100, ""),
        ("inner", 30, 90, ""),
    ]
    assert [(ask.begin, ask.end, ask.events, ask.waited, ask.work) for ask in read.asks] == [
        (40, 45, 5, -1, ((7, 40, 2),)),
        (50, 55, 2, -1, ((7, 100, 1),)),
        (120, 210, 2, 80, ()),
    ]


def test_a_node_of_a_backward_knows_the_last_operator_of_its_number():
    """An operator that makes no node has the number of the next that does."""
    node = "autograd::engine::evaluate_function: "
    found = timeline(
        profiled(
            Event("aten::amax", 100, 110, sequence=5),
            Event("CompiledFunction", 200, 260, sequence=5),
            Event("aten::mul", 300, 310, sequence=6),
            Event(f"{node}MulBackward0", 400, 420, sequence=6),
            Event("MulBackward0", 401, 415, sequence=6),
            Event(f"{node}CompiledFunctionBackward", 500, 600, sequence=5),
            Event("CompiledFunctionBackward", 501, 590, sequence=5),
            Event(f"{node}torch::autograd::AccumulateGrad", 610, 620),
        )
    )
    assert [(node.begin, node.made_at, node.compiled) for node in timeline_from(found).nodes] == [
        (300, 200, False),
        (400, 100, True),
        (510, None, False),
    ]


def test_calls_that_ask_too_much_have_no_timeline(monkeypatch):
    monkeypatch.setattr("dynadiag.torch_compat.trace.profile_events._MOST_ASKS", 1)
    events = profiled(*(Event(LAUNCH, at, at + 1, at) for at in (10, 20)), *(device("k", at, at + 1, at) for at in (10, 20)))
    assert timeline(events) == {"too_long": 2} and timeline_from(timeline(events)).too_long


def frame(number):
    """The frame of torch's wrapper around a call of a function."""
    return SimpleNamespace(f_code=SimpleNamespace(co_name="compile_wrapper"), f_back=None, f_locals={"fn": f"f{number}"})


@pytest.mark.parametrize(("calls", "periods"), [(6, 0), (7, 7), (12, 7), (13, 13), (20, 20), (30, 20), (40, 20), (100, 40)])
def test_the_calls_after_the_profile_are_timed_though_the_program_ends_soon(monkeypatch, calls, periods):
    monkeypatch.setattr(cost, "_wait_for_device", lambda: "cuda")
    clock = itertools.count(1000, 1000)
    monkeypatch.setattr(cost.time, "perf_counter_ns", lambda: next(clock))
    monkeypatch.setattr(cost, "compiled_name", str)
    written = []
    meter = cost.CostMeter(SimpleNamespace(artifact=lambda name, content, **_: written.append((name, content))))
    meter.begins("callback", frame(0))
    meter._calls[0], meter._starter, meter._timed_from = 23, (0, 23), 0
    meter._profiled = profiled(Event(REGION, 0, 9), Event(LAUNCH, 1, 2, 1), device("kernel", 3, 5, 1))
    for _ in range(calls):
        meter.begins("callback", frame(0))
    meter.finish()
    (of_regions, content), (of_timeline, known), *later = written
    assert (of_regions, of_timeline) == ("dynadiag_cost", "dynadiag_timeline")
    assert [region["region"] for region in content["regions"]] == ["0/0"] and known["starter"] == 0
    assert content["how"] == "torch.profiler, 20 steady calls of f0; nested regions and lookups subtracted"
    assert [(name, facts["calls"]) for name, facts in later] == [("dynadiag_period", timed) for timed in (20, 40) if 2 * timed <= calls]
    if periods:
        assert content["period_ns"] == pytest.approx({7: 1000, 13: 2000, 20: 3000, 40: 3000}[periods] / min(periods, 20))
        assert known["untimed"] is None
    else:
        assert content["period_ns"] is None and known["untimed"] == "it needs 30 steady calls, saw 29"


def test_a_call_inside_another_and_one_of_another_thread_are_not_counted(monkeypatch):
    monkeypatch.setattr(cost, "compiled_name", str)
    meter = cost.CostMeter(SimpleNamespace())
    outer = frame(0)
    inner = SimpleNamespace(f_code=outer.f_code, f_back=outer, f_locals={"fn": "g"})
    for _ in range(2):
        meter.begins("f", outer)
        meter.begins("g", inner)
    assert dict(meter._calls) == {0: 2}
    meter._open = cost._OpenCall(outer, None, SimpleNamespace(__exit__=None), thread=-1)
    meter.begins("h", frame(2))
    assert dict(meter._calls) == {0: 2}


def test_a_profile_without_events_is_empty():
    assert summarise(profiled()) == [] and timeline(profiled()) == {"spans": [], "asks": [], "nodes": []}


def test_kinetos_events_are_read_as_they_are():
    class Raw(SimpleNamespace):
        def __getattr__(self, name):
            raise AttributeError(name)

    raw = Raw(
        name=lambda: "k",
        start_ns=lambda: 5,
        duration_ns=lambda: 2,
        device_type=lambda: "DeviceType.CUDA",
        correlation_id=lambda: 3,
        sequence_nr=lambda: 9,
        device_resource_id=lambda: 7,
        start_thread_id=lambda: 1,
    )
    (event,) = read_events([raw]).events
    assert (event.begin, event.end, event.stream, event.on_device, event.correlation) == (5, 7, 7, True, 3)
