"""Verdicts over the shapes of a loop: labels, weighted means, what the verdict's line says, bench.json. Nothing here imports torch."""

import io
import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import jsonschema
import pytest
from rich.console import Console
from typer.testing import CliRunner

from dynadiag.bench import json_result, picture, show
from dynadiag.bench.arms import ArmSpec
from dynadiag.bench.judging import compare_arms, summarise
from dynadiag.bench.outcome import ArmResult, BenchResult, Correctness
from dynadiag.bench.process import ArmFailedError
from dynadiag.bench.round_loop import BenchOptions, Runner
from dynadiag.bench.shapes import labels_of, replay_shapes
from dynadiag.bench.statistics import geometric_mean, weighted_geometric_mean
from dynadiag.bench.verdict import Budget
from dynadiag.errors import UsageError
from dynadiag.render.page import Page
from dynadiag_cli.main import app

SCHEMA = json.loads((Path(__file__).parents[3] / "docs" / "bench.schema.json").read_text())


def tensor(name, *shape, dtype="float32", grad=False):
    return {"name": name, "shape": list(shape), "dtype": dtype, "device": "cpu", "requires_grad": grad}


@pytest.mark.parametrize(
    ("shapes", "labels"),
    [
        ([[tensor("x", 8, 4)], [tensor("x", 9, 4)]], ["x 8x4", "x 9x4"]),
        ([[tensor("x", 8), tensor("mask", 3)], [tensor("x", 9), tensor("mask", 3)]], ["x 8", "x 9"]),
        ([[tensor("x", 8)], [tensor("x", 8, dtype="int64")]], ["x 8 float32", "x 8 int64"]),
        ([[tensor("x", 8)], [tensor("x", 8, grad=True)]], ["x 8 float32", "x 8 float32 with gradient"]),
        ([[tensor("x"), tensor("y", 2)]], ["x scalar, y 2"]),
        ([[]], ["no tensors"]),
        ([[], [tensor("x", 8)]], ["no tensors", "x 8 float32"]),
        ([], []),
    ],
)
def test_a_label_names_what_tells_a_shape_from_the_others(shapes, labels):
    assert labels_of(shapes) == labels


def test_labels_stay_apart_when_they_are_cut():
    shapes = [[tensor("x" * 90, size)] for size in (1, 2)]
    first, second = labels_of(shapes)
    assert first != second and len(first) < 70


def test_a_weight_counts_as_so_many_ratios():
    assert weighted_geometric_mean([2.0, 0.5], [3, 1]) == pytest.approx(geometric_mean([2.0, 2.0, 2.0, 0.5]))
    for ratios, weights in (([], []), ([1.0], [0]), ([1.0], [1, 2]), ([-1.0], [1])):
        with pytest.raises(ValueError):
            weighted_geometric_mean(ratios, weights)


SHAPES = {
    "shapes": [
        {"tensors": [tensor("x", 8)], "calls": 3, "first_call": 1},
        {"tensors": [tensor("x", 9)], "calls": 1, "first_call": 2},
    ],
    "left_out": {"in a different mode": 2},
}


class Arm:
    """Plays an arm's process: `ms` per shape; an exception in its place is raised when that shape is checked."""

    def __init__(self, ms, listed=SHAPES, ends=False):
        self.ms, self.listed, self.has_ended, self.ends = ms, listed, False, ends

    def ask(self, command, *, timeout_s, on_phase):
        what, index = command["shape"], command.get("index", 0)
        value = self.ms[index]
        if what == "list":
            return self.listed
        if what == "check":
            if isinstance(value, Exception):
                self.has_ended = self.ends
                raise value
            status = "WRONG" if value < 0 else "PASS"
            return {"status": status, "worst": "output", "detail": "is off", "error": 1.0, "allowed": 0.1, "compared": 1}
        if what == "settle":
            return {"graphs": 2, "breaks": 0, "recompiles": 1, "limit_hits": 0}
        if what == "warm":
            return {"calls": 4, "still": True, "call_s": abs(value) / 1e3}
        if what == "block":
            return {"wall_s": abs(value) / 1e3 * command["calls"], "device_s": None, "calls": command["calls"], "late": False}
        return 0.0 if value == 77.0 else 1.0


def study(default, eager=(10.0, 10.0), **options):
    names = {"eager": Arm(eager), "A/A": Arm(eager), "default": default}
    result = BenchResult(target="script.py", unit="forward", environment={"device": None, "torch": "2.15.0"}, rounds=20)
    result.same_again = ArmResult(name="A/A", samples_ms=[10.0] * 20)
    result.arms = [ArmResult(name="eager", samples_ms=[10.0] * 20), ArmResult(name="default", samples_ms=[5.0] * 20, graphs=1)]
    result.correctness = [
        Correctness(arm=name, status="PASS", worst=None, detail="", error=None, allowed=None, compared=1) for name in ("eager", "default")
    ]
    rows = {row.name: row for row in (*result.arms, result.same_again)}
    for row in rows.values():
        summarise(row, result.arms[0])
    compare_arms(result, in_process=False)
    kinds = {"default": "compiled"}
    runners = [
        Runner(spec=ArmSpec(name=name, kind=kinds.get(name, "eager"), target="script.py"), process=arm, row=rows[name], renew=lambda: arm)
        for name, arm in names.items()
    ]
    replay_shapes(result, runners, BenchOptions(budget=Budget(max_rounds=20), **options), lambda _text, _left_s: None)
    jsonschema.Draft202012Validator(SCHEMA).validate(json.loads(json_result.dumps(result)))
    return result


def text_of(result, width=400):
    out = io.StringIO()
    Page(Console(file=out, width=width, color_system=None)).document(show.document_of(result))
    return out.getvalue()


def verdicts(result):
    return [(one.label, str(one.timing.comparisons[0].verdict)) for one in result.shapes.shapes]


def test_a_win_that_vanishes_in_another_shape_is_in_the_line_of_the_verdict():
    result = study(Arm([5.0, 12.5]))
    assert verdicts(result) == [("x 8", "FASTER"), ("x 9", "SLOWER")]
    text = text_of(result)
    assert "results PASS; not FASTER in 1 of 2 shapes: SLOWER (0.800 times as fast) at x 9" in text
    assert f"all shapes: default vs. eager: {(2**3 * 0.8) ** 0.25:.3f} times as fast (geometric mean of 2 shapes" in text
    assert "weighted by their 4 calls" in text and "2 of the watched calls not replayed: in a different mode" in text
    assert "default for all shapes together: graphs 2, recompiles 1" in text
    assert result.exit_status == 1


def test_the_picture_has_a_row_for_each_shape_and_arm():
    root = ElementTree.fromstring(picture.draw(study(Arm([5.0, -2.0]))))
    texts = [item.text for item in root.iter() if item.tag.endswith("text")]
    assert "x 8 (3 calls)" in texts and "x 9 (1 call)" in texts and "2.000 FASTER" in texts and "WRONG" in texts
    assert len([item for item in root.iter() if item.tag.endswith("polygon")]) == 1, "what is wrong has no speed"
    assert max(float(item.get("y") or 0) for item in root.iter()) < float(root.get("height"))


def test_a_win_that_holds_says_so():
    result = study(Arm([5.0, 5.0]))
    assert "the same in all 2 shapes" in text_of(result) and result.exit_status == 0


def test_a_shape_with_wrong_results_has_no_speed_and_is_left_out_by_name():
    result = study(Arm([5.0, -2.0]))
    assert verdicts(result) == [("x 8", "FASTER"), ("x 9", "WRONG")]
    (mean,) = result.shapes.means
    assert (mean.speedup, mean.calls, mean.left_out) == (pytest.approx(2.0), 3, ["x 9"])
    assert "WRONG at x 9" in text_of(result) and result.exit_status == 1


def test_a_shape_without_memory_leaves_the_others_alone():
    result = study(Arm([5.0, ArmFailedError("oom", "the device has no memory left")]))
    assert verdicts(result) == [("x 8", "FASTER"), ("x 9", "INCONCLUSIVE")]
    assert result.shapes.shapes[1].timing.arms[1].status == "oom" and result.arms[1].status == "ok"


def test_an_arm_that_dies_at_a_shape_keeps_its_first_verdict():
    result = study(Arm([ArmFailedError("crashed", "was ended by SIGSEGV"), 5.0], ends=True))
    assert verdicts(result) == [("x 8", "INCONCLUSIVE"), ("x 9", "INCONCLUSIVE")]
    assert result.comparisons[0].verdict == "FASTER" and "was ended by SIGSEGV" in text_of(result)
    assert result.shapes.means[0].speedup is None and "no shape has both correct results" in result.shapes.means[0].reason


def test_a_shape_past_the_recompile_limit_ran_eager_and_gets_no_verdict():
    result = study(Arm([5.0, 77.0]))
    assert verdicts(result) == [("x 8", "FASTER"), ("x 9", "INCONCLUSIVE")]
    assert "they ran eagerly" in text_of(result)


def test_an_arm_that_saw_other_shapes_is_not_compared():
    result = study(Arm([5.0, 5.0], listed={**SHAPES, "left_out": {}}))
    assert "different shapes than the baseline" in text_of(result)
    assert verdicts(result) == [("x 8", "INCONCLUSIVE"), ("x 9", "INCONCLUSIVE")]


def test_without_a_baseline_nothing_is_replayed():
    result = BenchResult(target="script.py", arms=[ArmResult(name="eager", status="oom", reason="no memory")])
    replay_shapes(result, [], BenchOptions(), lambda _text, _left_s: None)
    assert json_result.to_dict(result)["unknown"]["shapes"] == "eager could not be timed" and "no shapes were replayed" in text_of(result)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--fn", "a:b", "--shapes", "5"], "--shapes replays the calls of a script"),
        (["plain.py", "--variants", "a: 1", "b: 2", "--shapes", "5"], "--shapes replays the calls of a script"),
        (["plain.py", "--after", "plain.py", "--shapes", "5"], "leave out --after and --git"),
    ],
)
def test_shapes_need_a_script(tmp_path, monkeypatch, arguments, says):
    monkeypatch.chdir(tmp_path)
    Path("plain.py").write_text("x = 1\n")
    done = CliRunner().invoke(app, ["bench", *arguments])
    assert isinstance(done.exception, UsageError) and says in done.exception.message
