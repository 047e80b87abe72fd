"""A benchmark that is ended before its end keeps what was finished; an arm that is gone says what could not be timed."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from dynadiag.bench import session
from dynadiag.bench.arms import parse_arms
from dynadiag.bench.json_result import to_dict
from dynadiag.bench.process import ArmFailedError
from dynadiag.bench.round_loop import BenchOptions
from dynadiag.bench.verdict import Budget
from tests.unit.render.test_every_string import bench_result

SCHEMA = json.loads((Path(__file__).parents[3] / "docs" / "bench.schema.json").read_text())
PASS = {"status": "PASS", "worst": None, "detail": "", "error": None, "allowed": None, "compared": 3}
COMPILED = {"graphs": 1, "breaks": 0, "recompiles": 0}
ANSWERS = {
    "load": {"device": None, "torch": "2.15.0"},
    "prepare": {"outcome": PASS, "unit": "forward", "notes": [], **COMPILED},
    "warm": {"call_s": 0.005, "calls": 5, "still": True},
    "finish": {"busy_s": None, "regions": 1.0},
    "work": {"eager_flops": 0, "graph_flops": 0, "graphs": [], "tf32_matmul": False, "tf32_convolution": False},
}


class Arm:
    """Plays an arm's process, whose `fault` is raised by the `number`-th command `what` to the arm `name`."""

    fault = (None, None, 1, KeyboardInterrupt())
    started = 0
    has_ended = False

    def __init__(self, **_options):
        Arm.started += 1
        self.asked = []

    def ask(self, command, *, timeout_s, on_phase=None):
        name, what, number, error = Arm.fault
        self.asked.append(command["do"])
        if command["arm"] == name and command["do"] == what and self.asked.count(what) == number:
            raise error
        if command["do"] == "block":
            return {"wall_s": command["calls"] * 5e-3, "device_s": None, "calls": command["calls"], "late": False, "rest_s": 0.0}
        return dict(ANSWERS[command["do"]])

    def kill(self):
        pass

    close = kill


@pytest.fixture
def run(monkeypatch):
    monkeypatch.setattr(session, "ArmProcess", Arm)

    def run(*fault):
        monkeypatch.setattr(Arm, "fault", fault)
        monkeypatch.setattr(Arm, "started", 0)
        kept = []
        arms = parse_arms("eager,default,aot_eager", "steps.py:step")
        result = session.bench(arms, BenchOptions(budget=Budget(max_rounds=20), keep=lambda so_far: kept.append(to_dict(so_far))))
        return to_dict(result), result.exit_status, kept

    return run


def statuses(document):
    jsonschema.Draft202012Validator(SCHEMA).validate(document)
    return {arm["name"]: (arm["status"], len(arm["samples_ms"])) for arm in document["arms"]}


@pytest.mark.parametrize(
    ("name", "what", "number", "row"),
    [
        ("default", "prepare", 1, ("interrupted", 0)),
        ("aot_eager", "warm", 1, ("interrupted", 0)),
        ("default", "block", 12, ("ok", 11)),
        ("aot_eager", "finish", 1, ("ok", 20)),
    ],
)
def test_what_was_finished_before_an_interrupt_is_the_result(run, name, what, number, row):
    document, exit_status, _ = run(name, what, number, KeyboardInterrupt())
    assert statuses(document) == dict.fromkeys(("eager", "default", "aot_eager"), row)
    assert document["interrupted"] and exit_status == 130
    assert "the benchmark was ended early: this is what had been finished" in document["notes"]
    assert {item["status"] for item in document["correctness"]} == {"PASS"}
    verdicts = [(item["verdict"], item["rounds"]) for item in document["comparisons"]]
    assert all(one == ("SAME", 20) if what == "finish" else one[0] == "INCONCLUSIVE" for one in verdicts)


def test_nothing_is_kept_where_nothing_was_finished(run):
    with pytest.raises(KeyboardInterrupt):
        run("eager", "load", 1, KeyboardInterrupt())


def test_what_is_finished_is_given_away_as_it_comes(run):
    document, exit_status, kept = run(None, None, 1, None)
    assert not document["interrupted"] and exit_status == 0
    assert [statuses(one) for one in kept[-2:]] == [statuses(document)] * 2
    assert set(statuses(kept[0]).values()) == {("interrupted", 0)} and all(one["interrupted"] for one in kept)


def test_without_the_second_baseline_nothing_is_compared_and_that_is_said(run):
    document, exit_status, _ = run("A/A", "warm", 1, ArmFailedError("crashed", "was ended by SIGKILL"))
    assert exit_status == 2 and not document["rounds"]
    assert {item["reason"] for item in document["comparisons"]} == {"A/A: was ended by SIGKILL"}


def test_a_baseline_that_hangs_is_not_waited_for_in_every_arm(run):
    document, exit_status, _ = run("eager", "load", 1, ArmFailedError("timeout", "did not answer within 900 s and was ended"))
    assert exit_status == 2
    assert {arm["reason"] for arm in document["arms"][1:]} == {"not started because eager failed"}


def test_what_is_kept_meanwhile_is_data_and_picture_and_the_page_comes_at_the_end(tmp_path, monkeypatch):
    from dynadiag.render.html import result_page
    from dynadiag_cli import verb_bench

    pages = []
    monkeypatch.setattr(result_page, "render", lambda told: pages.append(told) or "a page")
    result = bench_result("eager")
    verb_bench._keep(result, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bench.json", "bench.svg", "form.json"] and not pages
    verb_bench._write(result, tmp_path)
    assert (tmp_path / "report.html").read_text() == "a page" and len(pages) == 1
