"""Prices of breaks from samples: what adds up, what stays unexplained, what has no price. Nothing here imports torch."""

import json
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynadiag.bench import json_result
from dynadiag.bench.arms import ArmSpec
from dynadiag.bench.break_costs import find_prices, price_lines, prices_from
from dynadiag.bench.outcome import ArmResult, BenchResult
from dynadiag.bench.process import ArmFailedError
from dynadiag.bench.round_loop import BenchOptions, Runner

SCHEMA = json.loads((Path(__file__).parents[3] / "docs" / "bench.schema.json").read_text())
ROUNDS = 20


def place(where, ms, why_not="", times=1):
    samples = [] if why_not else [ms] * ROUNDS
    known = {"where": where, "reason": "a call", "is_break": True, "times": times, "pause_ms": 0.1}
    return {**known, "why_not": why_not, "price_samples_ms": samples}


def raw(*places, step=16.0, unbroken=11.0, **more):
    samples = {"step_ms": [step] * ROUNDS, "unbroken_ms": [unbroken] * ROUNDS}
    return {"why_not": "", "graph_calls": 1 + len(places), "guards": [], "copy_backs": [], "places": list(places), **samples, **more}


def document(prices):
    result = BenchResult(target="x", arms=[ArmResult(name="eager"), ArmResult(name="default")], prices=prices)
    return json.loads(json_result.dumps(result))


def test_what_prices_leave_stands_apart_and_is_given_to_none():
    row = ArmResult(name="default")
    prices = prices_from(row, raw(place("train.py:3", 1.0), place("train.py:9", 3.0, times=2)))
    assert [one["ms"] for one in prices["breaks"]] == [1.0, 3.0] and prices["sum"]["ms"] == 4.0
    assert (prices["total"]["ms"], prices["unexplained"]["ms"]) == (5.0, 1.0)
    assert price_lines([prices]) == [
        "default: all graph breaks together: 5.000 ms [5.000, 5.000], 31% of the call, measured by joining its graphs to one",
        "default: break at train.py:9 (a call, 2 times per call): 3.000 ms [3.000, 3.000]",
        "default: break at train.py:3 (a call): 1.000 ms [1.000, 1.000]",
        "default: unexplained: 1.000 ms [1.000, 1.000]",
    ]
    jsonschema.Draft202012Validator(SCHEMA).validate(document([prices]))


def test_no_total_is_given_where_the_joined_graphs_compute_less_than_the_call():
    why = "output is made outside the graphs, and the joined graphs do not compute it"
    prices = prices_from(ArmResult(name="default"), raw(place("train.py:3", 1.0), place("train.py:9", 0.0, "eager"), total_why_not=why))
    assert (prices["total"], prices["unexplained"], prices["sum"]["ms"], prices["step"]["ms"]) == (None, None, 1.0, 16.0)
    assert prices["unknown"] == {"total": why, "unexplained": why}
    assert price_lines([prices]) == [
        f"default: all graph breaks together: not known: {why}",
        "default: break at train.py:3 (a call): 1.000 ms [1.000, 1.000]",
        "default: break at train.py:9 (a call): no price: eager",
    ]
    jsonschema.Draft202012Validator(SCHEMA).validate(document([prices]))


def test_prices_are_shares_of_the_call_in_the_timed_rounds():
    row = ArmResult(name="default", median_ms=8.0)
    slower = raw(place("train.py:3", 2.0), step=16.0, unbroken=12.0)
    prices = prices_from(row, slower)
    assert [prices[name]["ms"] for name in ("step", "total", "sum", "unexplained")] == [16.0, 2.0, 1.0, 1.0]
    assert prices["breaks"][0]["ms"] == 1.0 and prices["timed_ms"] == 8.0
    assert price_lines([prices])[0].endswith("2.000 ms [2.000, 2.000], 25% of the call, measured by joining its graphs to one")
    jsonschema.Draft202012Validator(SCHEMA).validate(document([prices]))


@given(st.lists(st.tuples(*[st.floats(0.5, 50)] * 4), min_size=20, max_size=30))
def test_the_rows_add_up_whatever_the_noise(rows):
    step, unbroken, first, second = (list(column) for column in zip(*rows, strict=True))
    places = [{**place("a.py:1", 0.0), "price_samples_ms": first}, {**place("a.py:2", 0.0), "price_samples_ms": second}]
    prices = prices_from(ArmResult(name="default"), {**raw(*places), "step_ms": step, "unbroken_ms": unbroken})
    assert sum(one["ms"] for one in prices["breaks"]) + prices["unexplained"]["ms"] == pytest.approx(prices["total"]["ms"], abs=1e-9)
    for figure in (prices["sum"], prices["unexplained"], prices["total"], *prices["breaks"]):
        assert figure["ci95_ms"][0] <= figure["ms"] <= figure["ci95_ms"][1]


def test_a_place_without_a_price_is_null_and_its_cost_stays_unexplained():
    prices = prices_from(ArmResult(name="default"), raw(place("a.py:1", 1.0), place("a.py:2", 0.0, why_not="eager code there")))
    assert prices["breaks"][1]["ms"] is None and prices["breaks"][1]["unknown"]["ms"] == "eager code there"
    assert prices["unexplained"]["ms"] == 4.0
    assert any("break at a.py:2 (a call): no price: eager code there" in line for line in price_lines([prices]))
    jsonschema.Draft202012Validator(SCHEMA).validate(document([prices]))


def test_a_price_beyond_the_call_itself_is_none():
    row = ArmResult(name="default", median_ms=16.0)
    prices = prices_from(row, raw(place("a.py:1", 1.0), place("a.py:2", -37.0), place("a.py:3", 17.0)))
    assert [one["ms"] for one in prices["breaks"]] == [1.0, None, None] and prices["sum"]["ms"] == 1.0
    assert prices["breaks"][1]["unknown"]["ms"].startswith("it came out as -37.000 ms, more than the call takes")
    jsonschema.Draft202012Validator(SCHEMA).validate(document([prices]))


def test_what_is_null_says_why():
    found = document([prices_from(ArmResult(name="default"), {"why_not": "a whole step"})])["prices"][0]
    assert found["unknown"] == dict.fromkeys(("graph_calls", "step", "total", "sum", "unexplained"), "a whole step")
    assert all(found[name] is None for name in found["unknown"])
    none = prices_from(ArmResult(name="default"), raw(place("a.py:2", 0.0, why_not="eager code there")))
    assert none["unknown"] == {"sum": "no place has a price"}


def test_guards_copies_and_skips_say_how_they_were_measured():
    guards = [
        {"id": "0/0", "function": "forward (a.py:1)", "calls": 2.0, "us": 4.0},
        {"id": "1/0", "function": "torch_dynamo_resume_in_forward_at_2 (a.py:2)", "calls": 1.0, "us": None},
    ]
    copies = [{"name": "L['x']", "bytes": 400, "samples_ms": [0.5] * ROUNDS}]
    row = ArmResult(name="reduce-overhead", cudagraph_skip_reasons=["mutated inputs"], busy_share=0.25, median_ms=8.0)
    prices = prices_from(row, {"why_not": "", "graph_calls": 1, "places": [], "guards": guards, "copy_backs": copies})
    assert price_lines([prices]) == [
        "reduce-overhead: no graph break in this call",
        "reduce-overhead: guards of forward (a.py:1): 0.0080 ms",
        "reduce-overhead: guards of torch_dynamo_resume_in_forward_at_2 (a.py:2): no price: "
        "this guard set was not made while it could be timed, part of its break's price",
        "reduce-overhead: copied back: L['x'] (400 bytes): 0.500 ms [0.500, 0.500]",
        "reduce-overhead: CUDA graphs skipped (mutated inputs): no price, at most 6.000 ms: "
        "nothing shows how long the call would take if CUDA graphs were not skipped",
    ]
    jsonschema.Draft202012Validator(SCHEMA).validate(document([prices]))


class Process:
    """Answers, or fails as told."""

    def __init__(self, answer):
        self.answer = answer

    def ask(self, command, *, timeout_s, on_phase):
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.mark.parametrize("why", ["was ended by SIGSEGV", "only a call can be taken apart"])
def test_an_arm_that_cannot_be_priced_says_why(why):
    answer = ArmFailedError("crashed", why) if "SIG" in why else {"why_not": why}
    rows = [ArmResult(name="eager"), ArmResult(name="default"), ArmResult(name="failed", status="oom", reason="no memory")]
    result = BenchResult(target="x", arms=rows)
    runners = [
        Runner(
            spec=ArmSpec(name=row.name, kind="eager" if row.name == "eager" else "compiled", target="x"),
            process=process,
            row=row,
            renew=None,
        )
        for row in rows
        for process in [Process(answer)]
    ]
    find_prices(result, runners, BenchOptions(), lambda _text, _left_s: None)
    assert price_lines(result.prices) == [f"default: no prices: {why}"]
    assert rows[1].status == "ok"
    jsonschema.Draft202012Validator(SCHEMA).validate(document(result.prices))
