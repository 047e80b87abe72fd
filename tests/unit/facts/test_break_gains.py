"""What a call gains without a break, on timelines whose answer is known: waits, hidden host time, eager callers, breaks removed by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dynadiag.facts.gaps import OUTSIDE, find_gaps
from dynadiag.model.compiled import Timeline
from dynadiag.passes.break_costs import BreakGains
from dynadiag.trace.timelines import timeline_from

TIMELINES = Path(__file__).parents[2] / "corpus" / "timelines"
US = 1000


def program(*pieces, calls=20, per_event_us=0, name="0 f"):
    """A timeline. Pieces: ("host", us), ("work", us[, kind]), ("wait",), ("graph",) and ("end",) of a graph, ("region", name), ("leave",).

    Host and device are played event by event; each event costs the host `per_event_us` more.
    """
    spans, asks, now, device = [], [], 0, 0
    for _ in range(calls):
        began, opened, graph, events = now, [], 0, 0
        now += US
        for what, *given in pieces:
            events += 1
            now += per_event_us * US if what != "host" else 0
            if what == "host":
                now += given[0] * US
            elif what == "work":
                device = max(device, now) + given[0] * US
                asks.append((now, now + 5 * US, events, -1, 7, given[0] * US, given[1] if len(given) > 1 else 1))
                now, events = now + 5 * US, 0
            elif what == "wait":
                began_wait, now = now, max(now, device) + 2 * US
                asks.append((began_wait, now, events, max(0, device - began_wait)))
                events = 0
            elif what == "graph":
                graph = now
            elif what == "end":
                spans += [(graph, -now, "graph", ""), (graph, -now, "inner", "")]
                now += US
            elif what == "region":
                opened.append((now, given[0]))
                now += US
            else:
                begin, region = opened.pop()
                spans.append((begin, -now, "region", region))
        spans += [(begin, -now, "region", region) for begin, region in opened]
        spans.append((began, -now, "call", name))
        now += US
    period_ns = max(now, device) / calls
    lines = [f"{kind} {begin} {-end} {text}".rstrip() for begin, end, kind, text in sorted(spans)]
    rows = [" ".join(map(str, ask)) for ask in asks]
    return {"spans": lines, "asks": rows, "nodes": [], "starter": 0, "period_ns": period_ns, "untimed": None}


def broken(*between, first=("work", 1000), second=("work", 500)):
    """A graph, what is `between`, and the graph behind a break."""
    return [("region", "0/0"), ("graph",), ("host", 20), first, ("end",), *between, ("region", "1/0"), ("graph",), second, ("end",)]


def gain_us(facts, regions=frozenset({"0/0"}), *, plain=None):
    gains = BreakGains(timeline_from(facts), plain)
    gaps = [gap for gap in gains.gaps if gap.regions & regions]
    assert gains.why_not == ""
    return tuple(round(end / US) for end in gains.gain(gaps, gaps)), gains, gaps


def test_a_wait_costs_what_the_device_then_idles_and_not_the_wait():
    (low, high), gains, gaps = gain_us(program(*broken(("wait",), ("host", 200))))
    assert gains.host_ns(gaps) > 1000 * US and 950 * US < gains.waiting_ns(gaps) < 1550 * US
    # Without it the device is busy for 1,500 of the 1,710 us of a call.
    assert low <= 210 <= high and high <= 500


def test_host_time_behind_a_busy_device_gains_nothing():
    (low, high), _, _ = gain_us(program(*broken(("host", 300))))
    assert low == 0 and high <= 0.06 * 1510 + 10


def test_host_time_gains_itself_where_the_host_decides():
    (low, high), _, _ = gain_us(program(*broken(("host", 300), first=("work", 20), second=("work", 10))))
    assert 250 <= low <= 300 <= high <= 400


def test_the_cost_of_the_profiler_is_taken_off():
    pieces = broken(("host", 300), first=("work", 20), second=("work", 10))
    plain = program(*pieces)["period_ns"]
    (low, high), gains, _ = gain_us(program(*pieces, per_event_us=2), plain=plain)
    assert 250 <= low <= 300 <= high <= 400
    assert gains.call_ns == pytest.approx(plain, rel=0.03)


def test_a_host_that_was_slow_at_first_is_scaled_to_what_later_calls_took():
    """An H200: 2.3 ms a call in the first calls after a compilation, 1.0 later."""
    facts = program(*broken(("host", 600), first=("work", 20), second=("work", 10)))
    (low, high), _, _ = gain_us(facts, plain=facts["period_ns"] / 2)
    assert 240 <= low <= 310 <= high <= 400


def test_a_profile_that_does_not_fit_gives_no_gain():
    facts = program(*broken(("host", 300)))
    gains = BreakGains(timeline_from({**facts, "period_ns": facts["period_ns"] * 3}))
    assert gains.why_not == "the replayed profile takes 1.500 ms per call, a call without a profiler 4.503 ms"
    gains = BreakGains(timeline_from({**facts, "period_ns": None, "untimed": "it needs more calls"}))
    assert gains.why_not == "it needs more calls"


def test_a_kernel_on_each_side_of_a_break_may_be_one_without_it():
    """Memory-bound: 0.131 of 0.262 ms on an H200, where the host never waits."""
    (low, high), _, _ = gain_us(program(*broken(first=("work", 130, 2), second=("work", 130, 2))))
    assert low == 0 and 130 <= high <= 180
    (_, high), _, _ = gain_us(program(*broken(first=("work", 130), second=("work", 130, 2))))
    assert high < 40


def eager_caller(checks=3):
    """A function that Dynamo gave up calls one region `checks` times, each with a break behind its graph, and computes something itself."""
    layer = [("region", "1/0"), ("graph",), ("work", 20), ("end",), ("wait",), ("host", 50), ("leave",), ("host", 3)]
    return program(*layer * checks, ("host", 100), ("work", 5, 0), ("host", 30))


def test_all_that_an_eager_caller_does_between_its_graphs_is_part_of_the_break():
    timeline = timeline_from(eager_caller())
    assert [gap.regions for gap in find_gaps(timeline)[:4]] == [{OUTSIDE}, {OUTSIDE, "1/0"}, {OUTSIDE, "1/0"}, {OUTSIDE, "1/0"}]
    gains = BreakGains(timeline)
    whole = gains.gain(gains.gaps, gains.gaps)
    part = gains.gain([], [gap for gap in gains.gaps if gap.regions == {OUTSIDE}])
    assert whole[0] > 250 * US and whole[1] == 365 * US  # all but the work itself
    assert part[0] == 0 and part[1] < whole[1]


def test_where_nothing_was_given_up_torchs_own_way_into_a_call_is_no_gap_of_a_break():
    gaps = find_gaps(timeline_from(program(*broken(("host", 300)), calls=1)))
    assert [gap.regions for gap in gaps] == [frozenset(), {"0/0"}, {"1/0"}]


def test_gains_are_those_of_a_call_of_the_function_that_breaks():
    """The function is called twice for each call of the one that the profile began with."""
    facts = program(*broken(("host", 300), first=("work", 20), second=("work", 10)))
    (once, _), _, _ = gain_us(facts)
    calls = [line for line in facts["spans"] if line.startswith("call")]
    renamed = [line.replace("0 f", "1 g") if line in calls[::2] else line for line in facts["spans"]]
    gains = BreakGains(timeline_from({**facts, "spans": renamed, "period_ns": facts["period_ns"] * 2}))
    gaps = [gap for gap in gains.gaps if "0/0" in gap.regions and gap.function == "1 g"]
    assert gains.gain(gaps, gaps)[0] / US == pytest.approx(once, rel=0.1)
    assert not gains.is_starter(gaps)


@pytest.mark.parametrize("file", sorted(TIMELINES.glob("*.json")), ids=lambda file: file.stem)
def test_the_ends_hold_what_removing_the_break_by_hand_gained(file):
    """Nineteen breaks of seventeen programs on an H200 (torch 2.11, `benchmarks/break_gains`), with some calls of each profile."""
    facts = json.loads(file.read_text())
    gains = BreakGains(timeline_from(facts))
    assert gains.why_not == ""
    for name, known in facts["gains_ms"].items():
        regions = set(known["regions"])
        gaps = [gap for gap in gains.gaps if gap.regions & regions and (OUTSIDE in regions or gap.regions - {OUTSIDE} & regions)]
        low, high = (end / 1e6 for end in gains.gain(gaps, gaps))
        print(f"{file.stem} {name}: {low:.3f} to {high:.3f} of {gains.call_ns / 1e6:.3f} ms, by hand {known['quartiles']}")
        assert low <= max(0.0, known["quartiles"][1]) <= high


def test_an_empty_timeline_has_no_gaps():
    gains = BreakGains(Timeline((), (), (), -1, None, None))
    assert gains.gaps == [] and gains.host_ns([]) == 0 and not gains.on_device
