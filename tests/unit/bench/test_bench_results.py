"""bench.json, the terminal table, the picture and --check, from results made by hand."""

import copy
import io
import json
import os
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import jsonschema
import pytest
from rich.console import Console

from dynadiag.bench import json_result, picture, show
from dynadiag.bench.judging import ONE_PROCESS, compare_arms, summarise
from dynadiag.bench.outcome import ArmResult, BenchResult, Correctness, ShapeResult, ShapeStudy
from dynadiag.bench.regression import find_regressions, read_base
from dynadiag.errors import OutputError, UnreadableInputError, UsageError
from dynadiag.render.page import Page
from dynadiag_cli import verb_bench

SCHEMA = json.loads((Path(__file__).parents[3] / "docs" / "bench.schema.json").read_text())
HOSTILE = "a\x1b[31m<script>\u202e[bold]"


def check(arm, status="PASS", **more):
    values = {"worst": None, "detail": "", "error": None, "allowed": None, "compared": 4, **more}
    return Correctness(arm=arm, status=status, **values)


def result_of(arm_ms=5.0, *, status="PASS", rounds=30, device="NVIDIA H200", **more):
    arms = [
        ArmResult(name="eager", samples_ms=[10.0] * rounds),
        ArmResult(
            name="default", samples_ms=[arm_ms] * rounds, compile_cold_s=20.0, compile_warm_s=2.0, graphs=1, breaks=0, recompiles=0, **more
        ),
    ]
    again = ArmResult(name="A/A", samples_ms=[10.0] * rounds)
    result = BenchResult(target="steps:train", unit="forward", arms=arms, same_again=again, rounds=rounds)
    result.environment = {"device": device, "torch": "2.15.0"}
    result.correctness = [check("eager"), check("default", status)]
    for row in (*arms, again):
        summarise(row, arms[0])
    compare_arms(result, in_process=False)
    return result


def text_of(result, width=100):
    out = io.StringIO()
    Page(Console(file=out, width=width, color_system=None)).document(show.document_of(result))
    return out.getvalue()


def failed():
    result = result_of(rounds=0)
    result.arms[1].status, result.arms[1].reason = "oom", "the device has no memory left: tried 99 GiB"
    result.comparisons.clear()
    compare_arms(result, in_process=False)
    return result


RESULTS = {
    "faster": result_of,
    "on a cpu": lambda: result_of(device=None),
    "wrong": lambda: result_of(status="WRONG"),
    "failed": failed,
    "nothing at all": lambda: BenchResult(target="steps:train", arms=[ArmResult(name="eager")]),
}


@pytest.mark.parametrize("name", RESULTS)
def test_every_result_fits_the_schema_and_can_be_shown(name):
    result = RESULTS[name]()
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.Draft202012Validator(SCHEMA).validate(json.loads(json_result.dumps(result)))
    assert text_of(result)
    ElementTree.fromstring(picture.draw(result))


def test_each_table_names_its_arms_in_80_columns():
    result = result_of(busy_share=0.4, peak_bytes=2 << 30, kernels=125.0)
    result.arms[1].name = "reduce-overhead"
    lines = text_of(result, width=80).splitlines()
    assert sum(line.startswith("  reduce-overhead ") for line in lines) == 4
    assert any(line.split() == ["reduce-overhead", "125", "40%", "2,048"] for line in lines)


@pytest.mark.parametrize("width", [40, 50, 60, 80])
def test_no_number_is_cut_in_a_narrow_terminal(width):
    result = result_of(23456.789, rounds=20)
    result.arms[1].name = "max-autotune-no-cudagraphs"
    text = text_of(result, width)
    assert "23,456.789" in text and "recompiles" in text and "PASS" in text
    assert text.count("max-auto") >= 2


def test_the_schema_refuses_a_null_without_its_reason():
    document = json_result.to_dict(result_of(device=None))
    assert document["arms"][0]["kernels"] is None
    del document["arms"][0]["unknown"]["kernels"]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(SCHEMA).validate(document)


def test_the_contract_of_bench_json():
    document = json_result.to_dict(result_of())
    assert document["device"] == "NVIDIA H200"
    comparison = document["comparisons"][0]
    assert [comparison.pop("speedup"), *comparison.pop("ci95")] == pytest.approx([2.0] * 3)
    assert comparison == {
        "baseline": "eager",
        "arm": "default",
        "verdict": "FASTER",
        "reason": "",
        "noise_ci95": [1.0, 1.0],
        "noise_ci99": [1.0, 1.0],
        "rounds": 30,
        "unknown": {},
    }
    assert document["arms"][1]["break_even_calls"] == pytest.approx(4000)
    assert document["arms"][1]["throughput_per_s"] == pytest.approx(200)


@pytest.mark.parametrize(
    ("status", "verdict", "exit_status"),
    [
        ("PASS", "FASTER", 0),
        ("WRONG", "WRONG", 1),
        ("DTYPE_CHANGED", "WRONG", 1),
        ("VACUOUS", "VACUOUS", 1),
        ("EAGER_NONDETERMINISTIC", "INCONCLUSIVE", 0),
    ],
)
def test_no_speed_counts_before_the_results_are_right(status, verdict, exit_status):
    result = result_of(status=status)
    assert result.comparisons[0].verdict == verdict
    assert result.exit_status == exit_status


def test_a_vacuous_baseline_makes_every_comparison_vacuous():
    result = result_of()
    result.correctness[0] = check("eager", "VACUOUS", detail="all outputs are constant")
    result.comparisons.clear()
    compare_arms(result, in_process=False)
    assert result.comparisons[0].verdict == "VACUOUS"


def test_the_noise_beside_another_arm_than_the_baseline_is_that_of_the_baseline():
    """An arm before a change is as fast as it is: its ratio to the A/A arm, which repeats the baseline, is no noise."""
    result = result_of(5.0)
    result.arms.append(ArmResult(name="after:default", samples_ms=[4.0] * 30))
    result.correctness.append(check("after:default"))
    result.comparisons.clear()
    compare_arms(result, in_process=False)
    assert [(one.baseline, one.arm, one.verdict) for one in result.comparisons] == [
        ("eager", "default", "FASTER"),
        ("eager", "after:default", "FASTER"),
        ("default", "after:default", "FASTER"),
    ]
    assert result.comparisons[2].decision.noise.high == 1.0 and abs(result.comparisons[2].decision.speedup.estimate - 1.25) < 1e-9


def test_slower_leaves_with_one_and_an_arm_that_failed_does_not():
    assert result_of(20.0).exit_status == 1
    assert failed().exit_status == 0
    broken = failed()
    broken.arms[0].status = "crashed"
    assert broken.exit_status == 2
    assert "no memory left" in text_of(failed())


def test_a_gain_that_is_not_proven_pays_off_after_nobody_knows_how_many_calls():
    assert "4,000 calls" in text_of(result_of(5.0)) and "never" in text_of(result_of(20.0))
    noisy = result_of(status="PASS")
    noisy.comparisons.clear()
    noisy.arms[1].samples_ms = [8.0, 14.0] * 15
    compare_arms(noisy, in_process=False)
    assert noisy.comparisons[0].verdict == "INCONCLUSIVE" and "not known" in text_of(noisy)


def test_iterations_are_no_calls_in_the_picture():
    result = result_of()
    result.arms[0].timed = "iteration"
    assert "milliseconds per iteration" in picture.draw(result) and "per call" not in picture.draw(result)


def test_why_nothing_was_compared_is_said_once():
    result = failed()
    result.arms[0].status, result.arms[0].reason = "crashed", "train.py raised ValueError: the reason"
    result.arms[0].samples_ms, result.arms[0].median_ms = [], None
    result.comparisons.clear()
    compare_arms(result, in_process=False)
    text = " ".join(text_of(result).split())
    assert "nothing was compared: eager: train.py raised ValueError: the reason" in text and text.count("the reason") == 1
    assert "default: oom: the device has no memory left" in text


def test_compiling_in_timed_blocks_leaves_the_verdict_open():
    result = result_of(late_blocks=5)
    assert result.comparisons[0].verdict == "INCONCLUSIVE"
    assert "still compiled in 5 of 30 timed blocks" in result.comparisons[0].reason


def test_an_arm_that_ran_eager_gets_no_speed_verdict():
    result = result_of(status="PASS")
    result.arms[1].status, result.arms[1].reason = "not_compiled", "the timed calls entered no compiled region: they ran eagerly"
    result.comparisons.clear()
    compare_arms(result, in_process=False)
    assert result.comparisons[0].verdict == "INCONCLUSIVE"


def test_noise_is_said():
    result = result_of()
    result.arms[0].samples_ms = [10.0, 12.0, 8.0] * 10
    compare_arms(result, in_process=False)
    assert any(note.startswith("noise: the blocks of eager vary") for note in result.notes)


def test_text_from_outside_is_never_markup():
    result = result_of()
    result.target = result.arms[1].reason = result.arms[1].status = HOSTILE
    shown, drawn = text_of(result), picture.draw(result)
    assert "\x1b" not in shown and "\u202e" not in shown and "[bold]" in shown
    assert "<script>" not in drawn


@pytest.mark.parametrize("width", [40, 80])
def test_no_line_is_wider_than_the_terminal(width):
    assert max(map(len, text_of(result_of(), width).splitlines())) <= width


def base_of(result):
    return json.loads(json_result.dumps(result))


@pytest.mark.parametrize(
    ("before_ms", "now", "says"),
    [
        (5.0, result_of(5.0), None),
        (5.0, result_of(4.0), None),
        (5.0, result_of(5.02), None),
        (5.0, result_of(6.0), "1.667 times as fast"),
        (5.0, result_of(5.0, status="WRONG"), "WRONG, was FASTER"),
        (5.0, failed(), "was timed before and is not now"),
    ],
)
def test_a_regression_is_found(before_ms, now, says):
    found = find_regressions(now, base_of(result_of(before_ms))).found
    assert bool(found) == (says is not None)
    assert says is None or says in found[0]


def test_a_base_from_elsewhere_is_compared_with_a_note():
    base = base_of(result_of())
    base["device"], base["target"] = "NVIDIA A100", "steps:other"
    base["comparisons"].append(copy.deepcopy(base["comparisons"][0]) | {"arm": "onnxrt"})
    notes = find_regressions(result_of(), base).notes
    assert any("NVIDIA A100" in note for note in notes) and any("onnxrt" in note for note in notes)
    assert any("the earlier run was of steps:other, not of steps:train" in note for note in notes)


def test_checks_and_floors_say_why_they_are_null():
    result = result_of()
    result.limits.floor = {"floor_ms": None, "bytes": 3}
    found = json_result.to_dict(result)
    assert found["floor"]["unknown"] == {"floor_ms": "no CUDA device was used"}
    for item in found["correctness"]:
        assert set(item["unknown"]) == {name for name in ("worst", "error", "allowed") if item[name] is None}
        assert all(item["unknown"].values())


def test_where_the_baseline_ran_again_is_said():
    assert "A/A is the baseline in a second process" in " ".join(text_of(result_of()).split())
    shared = result_of()
    shared.notes.append(ONE_PROCESS)
    assert "A/A is the baseline once more" in " ".join(text_of(shared).split())


def test_renamed_arms_leave_nothing_to_check_and_that_is_an_error():
    base = base_of(result_of())
    base["comparisons"][0]["arm"] = "old name"
    with pytest.raises(UsageError, match="nothing was checked"):
        verb_bench._regressed(result_of(), base)


def test_a_base_of_a_stranger_does_nothing_to_the_terminal_and_no_pipe_is_waited_for(tmp_path, capsys):
    base = base_of(result_of())
    base["device"] = "A100\x1b]8;;http://evil\x07\x1b[31m\u202e\nnext"
    base["target"] = {"\x1b[2J": 1}
    base["comparisons"].append(copy.deepcopy(base["comparisons"][0]) | {"arm": "\x9b31m\u2066"})
    verb_bench._regressed(result_of(), base)
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 3 and all(line.isprintable() for line in said.splitlines())
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UnreadableInputError, match="regular file"):
        read_base(tmp_path / "pipe")


def with_shape(default_ms, *, rows=8, label="x 8"):
    tensors = [{"name": "x", "shape": [rows, 4], "dtype": "float32", "device": "cpu", "requires_grad": False}]
    result = result_of()
    result.shapes = ShapeStudy(shapes=[ShapeResult(label=label, tensors=tensors, calls=3, first_call=1, timing=result_of(default_ms))])
    return result


def test_one_shape_that_got_slower_is_a_regression():
    base = base_of(with_shape(5.0))
    assert find_regressions(with_shape(5.0), base).found == []
    (line,) = find_regressions(with_shape(6.0, label="another label"), base).found
    assert line.startswith("default vs. eager at another label: 1.667 times as fast")
    assert find_regressions(with_shape(6.0, rows=9), base).found == []
    assert any("1 shapes are in the earlier run only" in note for note in find_regressions(with_shape(6.0, rows=9), base).notes)
    assert any("--shapes is missing" in note for note in find_regressions(result_of(), base).notes)
    for odd in (3, {"replayed": 3}, {"replayed": [None, {"tensors": 1, "comparisons": {}}]}):
        assert find_regressions(with_shape(6.0), base | {"shapes": odd}).found == []


@pytest.mark.parametrize("text", ["", "[]", "{", '{"schema_version": 2, "comparisons": []}', '{"schema_version": 1}', "[" * 100_000])
def test_a_base_that_is_none_is_one_line(tmp_path, text):
    path = tmp_path / "base.json"
    path.write_text(text)
    with pytest.raises(UnreadableInputError, match=r"is not a bench\.json"):
        read_base(path)
    with pytest.raises(UnreadableInputError, match="cannot be read"):
        read_base(tmp_path / "missing.json")


@pytest.mark.parametrize(
    "odd", [None, 3, {"speedup": "x"}, {"baseline": "eager", "arm": "default", "speedup": 0, "ci95": [1], "noise_ci95": None}]
)
def test_odd_entries_in_a_base_change_nothing(odd):
    assert find_regressions(result_of(), {"device": 3, "comparisons": [odd]}).found == []


def test_a_disk_that_fills_up_leaves_the_earlier_file_whole(tmp_path, monkeypatch):
    verb_bench._write(result_of(), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bench.json", "bench.svg", "form.json", "report.html"]
    before = (tmp_path / "bench.json").read_bytes()

    def full(*arguments, **keywords):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OutputError, match="No space left"):
        verb_bench._write(result_of(arm_ms=7.0), tmp_path)
    assert (tmp_path / "bench.json").read_bytes() == before


def test_the_picture_ends_a_long_title_and_shows_the_verdict_beside_the_baseline():
    result = result_of()
    result.target = "folder/" * 30 + "train.py:step"
    after = ArmResult(name="after:default", samples_ms=[5.0] * 30)
    summarise(after, result.arms[0])
    result.arms.append(after)
    result.correctness.append(check("after:default"))
    result.comparisons.clear()
    compare_arms(result, in_process=False)
    texts = [item.text for item in ElementTree.fromstring(picture.draw(result)).iter() if item.tag.endswith("text")]
    assert texts[0].startswith("...") and texts[0].endswith("train.py:step") and len(texts[0]) <= 72
    # Beside itself before the change it is the SAME.
    assert texts.count("5.000 ms FASTER") == 2
