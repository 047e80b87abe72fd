"""A process comes to rest when its other threads sleep, as the system's list of threads says; blocks are longer where that takes long."""

from __future__ import annotations

import math
import threading

import pytest

from dynadiag.bench import round_loop
from dynadiag.bench.arms import ArmSpec
from dynadiag.bench.inside import timing
from dynadiag.bench.outcome import ArmResult, BenchResult
from dynadiag.bench.round_loop import BenchOptions, RoundLoop, Runner
from dynadiag.bench.verdict import Budget


@pytest.fixture
def tasks(tmp_path):
    def put(**threads):
        for name, stat in threads.items():
            folder = tmp_path / name.removeprefix("t")
            folder.mkdir(exist_ok=True)
            (folder / "stat").write_text(stat)
        return tmp_path

    return put


def test_sleeping_threads_are_not_waited_for(tasks, monkeypatch):
    monkeypatch.setattr(timing.time, "sleep", lambda _: pytest.fail("nothing runs"))
    own = {f"t{threading.get_native_id()}": "1 (python) R 0"}
    timing.come_to_rest(tasks(t11="11 (gomp) S 0", t12="12 (a) R (b) S 0", **own))


def test_a_thread_that_runs_is_waited_for_until_it_sleeps(tasks, monkeypatch):
    naps = []

    def nap(seconds):
        naps.append(seconds)
        if len(naps) == 3:
            tasks(t11="11 (gomp) S 0")

    monkeypatch.setattr(timing.time, "sleep", nap)
    monkeypatch.setattr(timing, "_LONGEST_S", 1e9)
    timing.come_to_rest(tasks(t11="11 (gomp) R 0"))
    assert len(naps) == 3


def test_a_thread_that_never_sleeps_is_left_after_a_while(tasks):
    assert timing.come_to_rest(tasks(t11="11 (loader) R 0")) >= timing._LONGEST_S


def test_where_nothing_tells_the_threads_there_is_nothing_to_wait_for(tmp_path, tasks):
    timing.come_to_rest(tmp_path / "nowhere")
    folder = tasks(t11="garbage")
    (folder / "12").mkdir()
    timing.come_to_rest(folder)


class Clock:
    """Stands for the module `time` of the rounds."""

    now_s = 0.0

    @classmethod
    def monotonic(cls):
        return cls.now_s


class Arm:
    """Plays an arm's process: 1 ms a call, and `rest_s` after each block."""

    has_ended = False

    def __init__(self, rest_s=0.0, wait_s=0.0):
        self.rest_s, self.wait_s, self.blocks = rest_s, wait_s, []

    def ask(self, command, *, timeout_s, on_phase):
        self.blocks.append(command["calls"])
        Clock.now_s += command["calls"] / 1e3 + self.rest_s + self.wait_s
        return {"wall_s": command["calls"] / 1e3, "device_s": None, "calls": command["calls"], "late": False, "rest_s": self.rest_s}


def rounds_with(monkeypatch, **each):
    """20 rounds of two arms, and the calls of their blocks."""
    monkeypatch.setattr(round_loop, "time", Clock)
    result = BenchResult(target="x", arms=[ArmResult(name="eager")], same_again=ArmResult(name="A/A"))
    arms = {row.name: (row, Arm(**each)) for row in (*result.arms, result.same_again)}
    runners = [
        Runner(spec=ArmSpec(name=name, kind="eager", target="x"), process=arm, row=row, renew=lambda: None, call_s=0.001)
        for name, (row, arm) in arms.items()
    ]
    budget = BenchOptions(budget=Budget(max_rounds=20))
    RoundLoop(result, runners, budget, failed=lambda *_: pytest.fail("none fails"), progress=lambda *_: None).run_rounds()
    assert result.rounds == 20 and all(sample == pytest.approx(1.0) for row, _ in arms.values() for sample in row.samples_ms)
    return result, [arm.blocks for _, arm in arms.values()]


@pytest.mark.parametrize(("rest_s", "calls"), [(0.0, {23}), (0.002, {23}), (0.006, {23, 56})])
def test_blocks_are_longer_where_threads_take_long_to_sleep(monkeypatch, rest_s, calls):
    _, blocks = rounds_with(monkeypatch, rest_s=rest_s)
    assert all(set(one) == calls for one in blocks)


@pytest.mark.parametrize("wait_s", [0.0005, 0.008, 0.02])
def test_blocks_are_longer_where_an_arm_waits_for_a_core(monkeypatch, wait_s):
    result, blocks = rounds_with(monkeypatch, wait_s=wait_s)
    assert 0 < result.time.outside_share < 0.15
    assert all(one[0] == 23 and one[-1] == max(23, math.ceil(1.15 * 8 * wait_s * 1000)) for one in blocks)


def test_no_wait_makes_blocks_endless(monkeypatch):
    _, blocks = rounds_with(monkeypatch, wait_s=1.0)
    assert all(one[1:] == [230] * 19 for one in blocks)
