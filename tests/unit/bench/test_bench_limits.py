"""The floor of a step from counted work and measured ceilings, and the file that keeps the ceilings."""

import json
from datetime import UTC, datetime

import pytest

from dynadiag.bench.limits import find_limits, floor_of, store_ceilings, stored_ceilings
from dynadiag.bench.outcome import ArmResult, BenchResult
from dynadiag.bench.process import ArmFailedError
from dynadiag.bench.show import limit_lines

CEILINGS = {
    "device": "NVIDIA H200",
    "torch": "2.15.0",
    "copy_bytes_per_s": 4e12,
    "l2_bytes": 50_000_000,
    "matmul_flops_per_s": {"float32": 5e13, "tf32": 4e14, "float16": 8e14, "bfloat16": 8e14},
}


def work(*graphs, **flags):
    flops = sum(sum(graph["flops"].values()) * graph["runs"] for graph in graphs)
    return {"eager_flops": flops, "graph_flops": flops, "graphs": list(graphs), "tf32_matmul": False, "tf32_convolution": True, **flags}


def graph(flops, size, runs=1):
    return {"flops": flops, "bytes": size, "runs": runs}


@pytest.mark.parametrize(
    ("graphs", "flags", "floor_ms", "bound"),
    [
        ([graph({"float32": int(5e10)}, 1000)], {}, 1.0, "compute"),
        ([graph({"float32": int(5e10)}, 1000, runs=3)], {}, 3.0, "compute"),
        ([graph({"float32": int(4e11)}, 1000)], {"tf32_matmul": True}, 1.0, "compute"),
        ([graph({"float32:convolution": int(4e11)}, 1000)], {}, 1.0, "compute"),
        ([graph({"float16": int(8e11), "float32": int(5e10)}, 1000)], {}, 2.0, "compute"),
        ([graph({}, int(4e9))], {}, 1.0, "memory"),
        ([graph({"bfloat16": int(8e11)}, int(8e9))], {}, 2.0, "memory"),
        ([graph({}, 40_000_000)], {}, None, None),
        ([graph({"float64": 10}, int(4e9))], {}, None, None),
        ([], {}, None, None),
    ],
)
def test_a_floor_is_the_longer_of_computing_and_moving(graphs, flags, floor_ms, bound):
    found = floor_of(work(*graphs, **flags), CEILINGS)
    assert (found["floor_ms"], found["bound"]) == (pytest.approx(floor_ms) if floor_ms else None, bound)


def test_without_ceilings_work_is_counted_and_there_is_no_floor():
    found = floor_of(work(graph({"float32": 100}, 40, runs=2)), None)
    assert (found["graph_flops"], found["bytes"], found["floor_ms"]) == (200, 80, None)


def test_ceilings_are_kept_a_device_and_a_damaged_file_is_none(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert stored_ceilings("NVIDIA H200", "2.15.0") is None
    stored = store_ceilings(CEILINGS, now=datetime(2026, 11, 21, tzinfo=UTC))
    assert stored_ceilings("NVIDIA H200", "2.15.0") == stored == {**CEILINGS, "measured_at": "2026-11-21T00:00:00+00:00"}
    assert stored_ceilings("NVIDIA H200", "2.16.0") is None and stored_ceilings("NVIDIA H100", "2.15.0") is None
    (file,) = (tmp_path / "dynadiag").iterdir()
    for change in ({"copy_bytes_per_s": 0}, {"matmul_flops_per_s": {}}, {"matmul_flops_per_s": {"float32": "fast"}}, {"l2_bytes": None}):
        file.write_text(json.dumps({**stored, **change}))
        assert stored_ceilings("NVIDIA H200", "2.15.0") is None
    file.write_text("[" * 10_000)
    assert stored_ceilings("NVIDIA H200", "2.15.0") is None
    store_ceilings({**CEILINGS, "device": "../../etc/x"})
    assert {path.parent for path in tmp_path.rglob("*.json")} == {tmp_path / "dynadiag"}


def timed(ms):
    rows = [
        ArmResult(name="eager", samples_ms=[ms] * 20, median_ms=ms),
        ArmResult(name="default", samples_ms=[ms / 2] * 20, median_ms=ms / 2),
    ]
    rows[1].busy_share = 0.8
    result = BenchResult(target="x", arms=rows)
    result.environment = {"device": "NVIDIA H200", "torch": "2.15.0"}
    return result


def test_limits_are_asked_from_the_baseline_and_shown(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    asked = []

    def ask(what):
        asked.append(what)
        return work(graph({"float32": int(5e10)}, int(6e8))) if what == "work" else CEILINGS

    result = timed(4.0)
    find_limits(result, ask, remeasure=False)
    find_limits(timed(4.0), ask, remeasure=False)
    find_limits(timed(4.0), ask, remeasure=True)
    assert asked == ["work", "ceilings", "work", "work", "ceilings"]
    assert limit_lines(result) == [
        "one call: 50 GFLOP in 1 AOT graph (as eager), at least 600 MB moved",
        "eager: floor 1.000 ms -> wall 4.000 ms (25% of it is the floor)",
        "default: floor 1.000 ms -> kernels 1.600 ms -> wall 2.000 ms (50% of it is the floor)",
    ]
    near = timed(4.0)
    near.arms.pop()
    near.arms[0].median_ms, near.arms[0].samples_ms = 1.25, [1.25] * 20
    find_limits(near, ask, remeasure=False)
    expected = "eager is at 80% of the compute roof: no compiler can make these graphs more than 1.25 times as fast; change precision"
    assert limit_lines(near)[-1] == expected


def test_a_floor_above_a_measured_time_is_none(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    result = timed(1.0)
    find_limits(result, lambda what: work(graph({"float32": int(5e10)}, 0)) if what == "work" else CEILINGS, remeasure=False)
    assert result.limits.floor["floor_ms"] is None and "is above a measured time of 0.500 ms" in result.limits.why_not


def test_a_count_that_fails_leaves_the_benchmark_alone():
    def ask(_what):
        raise ArmFailedError("crashed", "ValueError: no")

    result = timed(1.0)
    find_limits(result, ask, remeasure=False)
    assert result.limits.floor is None and "counting what a step does failed: ValueError: no" in result.limits.why_not
    find_limits(result, None, remeasure=False)
    assert "only the call or step" in result.limits.why_not
