"""What a call gains without a break, on timelines whose answer is known: waiting, hidden host time, the profiler's own cost."""

from __future__ import annotations

import itertools
import re
from types import SimpleNamespace

import pytest

from dynadiag.torch_compat.trace import cost
from dynadiag.torch_compat.trace.device_timeline import Event, Timeline
from dynadiag.torch_compat.trace.profile_events import Profiled, read_events, summarise

US = 1000


def program(calls, *, pieces, cost_us=0):
    """Events of `calls` calls. Pieces: ("host", us), ("work", us), ("wait",), ("graph",) and ("end",) of the graph, ("region", name).

    Host and device are played event by event; each event costs the host `cost_us` more.
    """
    events, now, device, number = [], 0, 0, 0
    for _ in range(calls):
        opened, graph = [], 0
        for piece in pieces:
            now += cost_us * US if piece[0] != "host" else 0
            if piece[0] == "host":
                now += piece[1] * US
            elif piece[0] == "work":
                number += 1
                events.append(Event(name="cudaLaunchKernel", begin=now, end=now + 5 * US, correlation=number))
                device = max(device, now) + piece[1] * US
                events.append(Event(name="kernel", begin=device - piece[1] * US, end=device, correlation=number, stream=7, on_device=True))
                now += 5 * US
            elif piece[0] == "wait":
                begin, now = now, max(now, device) + 2 * US
                events.append(Event(name="cudaStreamSynchronize", begin=begin, end=now, correlation=0))
            elif piece[0] == "graph":
                graph = now
            elif piece[0] == "end":
                events.append(Event(name="dynadiag graph", begin=graph, end=now))
                now += 1 * US
            else:
                opened.append((piece[1], now))
                now += 1 * US
        events.extend(Event(name=f"Torch-Compiled Region: {name}", begin=begin, end=now) for name, begin in reversed(opened))
        now += 1 * US
    return Profiled(events=events, threads=[1] * len(events)), max(now, device) / calls


def gain_of(pieces, *, cost_us=0, calls=20):
    profiled, period = program(calls, pieces=pieces, cost_us=cost_us)
    plain = program(calls, pieces=pieces)[1]
    regions = {region["region"]: region for region in summarise(profiled, "0/0", plain)}
    assert period >= plain
    return regions["1/0"]


def broken(*between, first=("work", 1000), second=("work", 500)):
    return [("region", "0/0"), ("graph",), ("host", 20), first, ("end",), *between, ("region", "1/0"), ("graph",), second, ("end",)]


def test_a_wait_costs_what_the_device_then_idles_and_not_the_wait():
    found = gain_of(broken(("wait",), ("host", 200)))
    assert found["break_us"] > 1000 and 1400 < found["waiting_us"] < 1550
    low, high = found["gain_us"]
    assert found["gain_error_us"] == pytest.approx(0.06 * 1710, rel=0.01) and found["backward"] is False
    # Without it the device is busy for 1,500 of the 1,710 us of a call.
    assert 40 <= low <= 250 and 200 <= high <= 250


def test_host_time_behind_a_busy_device_gains_nothing():
    low, high = gain_of(broken(("host", 300)))["gain_us"]
    assert low == 0 and high <= 5


def test_host_time_gains_itself_where_the_host_decides():
    low, high = gain_of(broken(("host", 300), first=("work", 20), second=("work", 10)))["gain_us"]
    assert low == pytest.approx(300, abs=10) and high == pytest.approx(300, abs=10)


def test_the_cost_of_the_profiler_is_taken_off():
    pieces = broken(("host", 300), first=("work", 20), second=("work", 10))
    low, high = gain_of(pieces, cost_us=3)["gain_us"]
    assert low == pytest.approx(300, rel=0.1) and high == pytest.approx(300, rel=0.1)


def test_a_profile_that_does_not_fit_gives_no_gain():
    profiled, period = program(20, pieces=broken(("host", 300)))
    (region,) = [one for one in summarise(profiled, "0/0", period * 3) if one["region"] == "1/0"]
    assert region["gain_us"] is None and region["break_us"] > 0
    assert re.fullmatch(r"the replayed profile takes [\d.]+ ms per call, a call without a profiler [\d.]+ ms", region["gain_why_not"])
    (region,) = [one for one in summarise(profiled, "0/0", None, "it needs more calls") if one["region"] == "1/0"]
    assert region["gain_us"] is None and region["gain_why_not"] == "it needs more calls"


@pytest.mark.parametrize(("calls", "periods"), [(6, 0), (7, 7), (12, 7), (13, 13), (20, 20), (30, 20)])
def test_the_calls_after_the_profile_are_timed_though_the_program_ends_soon(monkeypatch, calls, periods):
    monkeypatch.setattr(cost, "_wait_for_device", lambda: "cuda")
    clock = itertools.count(1000, 1000)
    monkeypatch.setattr(cost.time, "perf_counter_ns", lambda: next(clock))
    written = []
    meter = cost.CostMeter(SimpleNamespace(artifact=lambda name, content, **_: written.append((name, content))))
    profiled, _ = program(20, pieces=broken(("host", 300)))
    meter._calls["0/0"], meter._starter, meter._profiled = 23, ("0/0", 23), (profiled, 0)
    for _ in range(calls):
        meter._enter("0/0")
    meter.finish()
    ((name, content),) = written
    assert name == "dynadiag_cost" and {"0/0", "1/0"} == {region["region"] for region in content["regions"]}
    if periods:
        assert content["period_ns"] == pytest.approx({7: 1000, 13: 2000, 20: 3000}[periods] / periods)
    else:
        assert content["period_ns"] is None
        assert "it needs 30 steady calls, saw 29" in [region.get("gain_why_not") for region in content["regions"]]


def test_without_a_device_there_is_host_time_alone():
    profiled, _ = program(
        20, pieces=[("region", "0/0"), ("graph",), ("host", 9), ("end",), ("host", 5), ("region", "1/0"), ("graph",), ("end",)]
    )
    (region,) = [one for one in summarise(profiled, "0/0") if one["region"] == "1/0"]
    assert region["break_us"] == 7 and region["waiting_us"] == 0 and "gain_us" not in region


def test_a_profile_without_events_is_a_period_of_nothing():
    assert Timeline([], []).period_ns == 0 and summarise(Profiled(events=[], threads=[])) == []


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
        device_resource_id=lambda: 7,
        start_thread_id=lambda: 1,
    )
    (event,) = read_events([raw]).events
    assert (event.begin, event.end, event.stream, event.on_device, event.correlation) == (5, 7, 7, True, 3)
