"""What becomes of changes by the verdict of `bench`, and how it is told."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import jsonschema
import pytest

from dynadiag.bench.outcome import ArmResult, BenchResult, Comparison
from dynadiag.bench.statistics import Interval
from dynadiag.bench.verdict import Decision, SpeedVerdict
from dynadiag.errors import UsageError
from dynadiag.fix import speed
from dynadiag.fix.baseline import Baseline
from dynadiag.fix.session import used_gpu
from dynadiag.fix.show import document_of
from dynadiag.fix.speed import Speed, Version, not_slower, speed_of, timed
from dynadiag.render.page import text_of
from tests.unit.fix.test_result import SCHEMA, result
from tests.unit.fix.test_search import change


class Verdicts:
    """A benchmark whose verdict is SLOWER where one of these sets of changes is in the program."""

    def __init__(self, *slower: str, verdict: SpeedVerdict = SpeedVerdict.SLOWER) -> None:
        self._slower, self._verdict = slower, verdict
        self.asked: list[str] = []

    def __call__(self, changes):
        names = "".join(one.slug for one in changes)
        self.asked.append(names)
        bad = any(set(one) <= set(names) for one in self._slower)
        return Speed(verdict=self._verdict if bad else SpeedVerdict.FASTER, reason="")


@pytest.mark.parametrize(
    ("slower", "left", "asked"),
    [
        ((), "abc", ["abc"]),
        (("b",), "ac", ["abc", "a", "b", "c", "ac"]),
        (("ac",), "ab", ["abc", "a", "b", "c", "ab"]),  # none of them alone
        (("a", "b", "c"), "", ["abc", "a", "b", "c"]),
    ],
)
def test_what_makes_the_program_slower_is_dropped(slower, left, asked):
    judge = Verdicts(*slower)
    kept, dropped, found = not_slower([change(number) for number in (1, 2, 3)], judge)
    assert "".join(one.slug for one in kept) == left
    assert sorted(dropped) == [f"x{number}" for number, name in enumerate("abc", start=1) if name not in left]
    assert judge.asked == asked
    assert found.verdict == (SpeedVerdict.FASTER if left else SpeedVerdict.SLOWER)


def test_of_changes_on_top_of_others_the_last_goes_first():
    judge = Verdicts("a")
    kept, dropped, _ = not_slower([change(1), replace(change(2), layer=1)], judge)
    assert (kept, sorted(dropped), judge.asked) == ([], ["x1", "x2"], ["ab", "a"])


def test_wrong_results_are_a_reason_to_drop_too_and_an_open_verdict_is_none():
    assert not_slower([change(1)], Verdicts("a", verdict=SpeedVerdict.WRONG))[0] == []
    for verdict in (SpeedVerdict.INCONCLUSIVE, SpeedVerdict.SAME, SpeedVerdict.VACUOUS):
        assert not_slower([change(1)], Verdicts("a", verdict=verdict))[0] == [change(1)]


def test_the_verdict_of_bench_is_told_with_its_intervals_and_has_the_published_schema():
    decision = Decision(
        SpeedVerdict.FASTER,
        "",
        speedup=Interval(1.5, 1.4, 1.6),
        noise=Interval(1.0, 0.99, 1.01),
        widest=Interval(1.0, 0.98, 1.02),
        rounds=20,
    )
    found = BenchResult(target="train.py", unit="call 3 of step (train.py:5)", rounds=20)
    found.arms = [
        ArmResult(name="default", median_ms=3.0, ci95_ms=(2.9, 3.1), compile_cold_s=4.0),
        ArmResult(name="after:default", median_ms=2.0, ci95_ms=(1.9, 2.1), compile_cold_s=2.5),
    ]
    found.comparisons = [Comparison(baseline="default", arm="after:default", verdict=SpeedVerdict.FASTER, reason="", decision=decision)]
    one = replace(result(kept=True), speed=speed_of(found), no_speed=None)
    jsonschema.validate(one.to_json("0"), SCHEMA)
    assert one.to_json("0")["speed"]["after"] == {"median_ms": 2.0, "ci95_ms": [1.9, 2.1], "compile_cold_s": 2.5}
    words = " ".join(text_of(document_of(one)).split())
    assert "speed: FASTER: 1.500 times as fast [1.400, 1.600], A/A [0.980, 1.020]; 3.000 ms [2.900, 3.100] -> 2.000 ms" in words
    assert "compiling from cold caches 4.0 s -> 2.5 s" in words


def test_what_was_not_timed_says_why():
    failed = BenchResult(target="train.py", arms=[ArmResult(name="default", status="crashed", reason="died by SIGSEGV")])
    one = speed_of(failed)
    assert (one.verdict, one.reason) == (SpeedVerdict.INCONCLUSIVE, "died by SIGSEGV")
    jsonschema.validate(replace(result(kept=True), speed=one, no_speed=None).to_json("0"), SCHEMA)
    jsonschema.validate(
        json.loads(
            json.dumps(
                speed.to_json(Speed(verdict=one.verdict, reason="", before=Version(median_ms=None, ci95_ms=None, compile_cold_s=None)))
            )
        ),
        SCHEMA["$defs"]["speed"] | {"$defs": SCHEMA["$defs"]},
    )


@pytest.mark.parametrize(
    ("devices", "timed_by_itself"), [((None,), False), (("cpu",), False), (("cpu", "NVIDIA H100"), True), (("cuda",), True)]
)
def test_only_what_used_a_gpu_is_timed_without_being_asked(devices, timed_by_itself):
    report = SimpleNamespace(run=SimpleNamespace(processes=[SimpleNamespace(device=one) for one in devices]))
    assert used_gpu(report) == timed_by_itself  # type: ignore[arg-type]


def test_the_callable_with_most_calls_is_timed_from_the_scripts_own_folder(monkeypatch, tmp_path: Path):
    """Both versions run the script as the user does; what bench refuses is an open verdict, not an error."""
    asked = []

    def bench(arms, options):
        asked.extend(arms)
        raise UsageError("it ends before")

    monkeypatch.setattr(speed, "bench", bench)
    baseline = Baseline(directory=tmp_path, script=tmp_path / "train.py", module="job.train", arguments=("--lr", "1"), folder=tmp_path)
    found = timed(baseline, {"/a.py": "x = 1\n"}, {"1 first": 2, "2 step": 5})
    assert found.words == "INCONCLUSIVE: it could not be timed: it ends before"
    before, after = asked
    assert (before.name, after.name, before.after, after.after) == ("default", "after:default", False, True)
    assert before.texts == {} and after.texts == {"/a.py": "x = 1\n"}
    assert before.script == after.script and (before.script.chosen, before.script.call, before.script.module) == ("2", 3, "job.train")
    assert before.folder == after.folder == str(tmp_path) and before.arguments == ("--lr", "1")
