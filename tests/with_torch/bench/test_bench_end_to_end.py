"""`dynadiag bench` from the command line to its files, on a CPU, with arms that crash and arms that are wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from dynadiag.bench.inside.loading import CompileSwitch, load_step
from dynadiag.capture.script import UserCodeError
from dynadiag.errors import UsageError
from tests.documented import TRAIN, commands

ROOT = Path(__file__).parents[3]
PROGRAM = Path(__file__).with_name("bench_program.py")


def bench(folder, *arguments):
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'cli'}", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "dynadiag", "bench", "--max-time", "1", *map(str, arguments)]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=1500)


@pytest.mark.slow
def test_each_arm_has_its_row_and_a_crash_stops_no_other(tmp_path):
    done = bench(tmp_path, PROGRAM, "--arms", "eager,planted_crash,planted_wrong")
    assert done.returncode == 1, done.stderr
    document = json.loads((tmp_path / "dynadiag-runs/latest/bench.json").read_text())
    jsonschema.Draft202012Validator(json.loads((ROOT / "docs/bench.schema.json").read_text())).validate(document)
    arms = {arm["name"]: arm for arm in document["arms"]}
    assert {name: arm["status"] for name, arm in arms.items()} == {
        "eager": "ok",
        "planted_crash": "crashed",
        "planted_wrong": "ok",
    }
    assert "SIGSEGV" in arms["planted_crash"]["reason"]
    assert arms["planted_wrong"]["graphs"] == 1 and arms["planted_wrong"]["breaks"] == 0 and arms["planted_wrong"]["regions"] == 1
    assert arms["eager"]["graphs"] is None and arms["eager"]["unknown"]["graphs"] == "this arm does not compile anything"
    verdicts = {item["arm"]: item["verdict"] for item in document["comparisons"]}
    assert verdicts["planted_wrong"] == "WRONG" and verdicts["planted_crash"] == "INCONCLUSIVE"
    assert {item["arm"]: item["status"] for item in document["correctness"]} == {
        "eager": "PASS",
        "planted_wrong": "WRONG",
    }
    # At least 20 rounds whatever the time limit; whole blocks of at least 20 ms.
    assert document["rounds"] >= 20 and len(arms["eager"]["samples_ms"]) == document["rounds"]
    # What a step does is counted from its AOT graphs; the device's ceilings, and so the floor, are for CUDA.
    assert document["floor"]["graph_flops"] == document["floor"]["eager_flops"] == 2 * 2 * 16 * 32 * 32
    assert document["floor_ms"] is None and "CUDA devices only" in document["unknown"]["floor_ms"]
    assert arms["planted_wrong"]["saved_bytes"] > 0 and arms["planted_crash"]["unknown"]["saved_bytes"]
    assert "one call: 65.5 kFLOP in" in done.stdout
    assert "WRONG: planted_wrong vs. eager" in done.stdout and "no CUDA device was used" in done.stdout
    assert "what a program prints" not in done.stdout
    assert (tmp_path / "dynadiag-runs/latest/bench.svg").read_text().startswith("<svg")


SCRIPT = """
import sys, torch

torch.manual_seed(int(sys.argv[1]))
model = torch.compile(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU()))
with torch.no_grad():
    for number in range(2):
        print("the script prints", number, model(torch.randn(4, 8)).shape)
"""


@pytest.mark.slow
def test_a_script_without_a_mark_is_taken_over_and_compared_with_its_fix(tmp_path):
    """What its arms write into files is gone afterwards."""
    (tmp_path / "script.py").write_text("open('results.csv', 'a').write('row')" + SCRIPT)
    (tmp_path / "fixed.py").write_text(SCRIPT.replace("GELU", "ReLU").replace("range(2)", "range(9)"))
    done = bench(tmp_path, "--arms", "eager", "--after", "fixed.py", "--max-rounds", "20", "--json", "script.py", "--", "5")
    assert done.returncode == 1, done.stderr
    document = json.loads(done.stdout)
    jsonschema.Draft202012Validator(json.loads((ROOT / "docs/bench.schema.json").read_text())).validate(document)
    assert document["unit"] == "forward, call 2 of Sequential (script.py:5)"
    # The other version is taken over at the call of the baseline, though it makes more of them.
    used = [note for note in document["notes"] if "the last one" in note]
    assert used == ["script.py ended before call 3 of a compiled callable: the last one, call 2, was used"]
    log = (tmp_path / "dynadiag-runs/latest/arm-2.log").read_text()
    assert "the script prints 0" in log and "the script prints 1" not in log
    assert [item["arm"] for item in document["comparisons"]] == ["after:eager"]
    right, wrong = document["correctness"]
    assert (right["arm"], right["status"], wrong["arm"], wrong["status"]) == ("eager", "PASS", "after:eager", "WRONG")
    assert wrong["worst"] == "output" and "before the change" in wrong["detail"]
    assert {arm["status"] for arm in document["arms"]} == {"ok"}
    assert "the script prints 1" in (tmp_path / "dynadiag-runs/latest/arm-0.log").read_text()
    assert sorted(one.name for one in tmp_path.iterdir()) == ["dynadiag-runs", "fixed.py", "script.py"]


@pytest.mark.slow
def test_variants_of_a_script_are_timed_by_their_loop(tmp_path):
    """The command of the documentation."""
    (tmp_path / "train.py").write_text(TRAIN)
    (shown,) = (words for _, words in commands() if "--variants" in words)
    done = bench(tmp_path, "--json", "--max-rounds", "20", *shown[2:])
    assert done.stdout, done.stderr
    document = json.loads(done.stdout)
    jsonschema.Draft202012Validator(json.loads((ROOT / "docs/bench.schema.json").read_text())).validate(document)
    assert document["unit"] == "one iteration of the loop at train.py:21, the innermost around optimizer.step"
    arms = {arm["name"]: arm for arm in document["arms"]}
    assert [arm["status"] for arm in arms.values()] == ["ok", "ok"]
    assert len(arms["model"]["samples_ms"]) == document["rounds"] == 20
    assert arms["model"]["timed"] == "iteration" and "not separated" in arms["model"]["unknown"]["compile_cold_s"]
    assert document["correctness"] == []


def test_a_script_with_nothing_to_compare_is_one_line(tmp_path):
    (tmp_path / "script.py").write_text("print('uncompiled')\nimport torch\n")  # so only one process imports it
    done = bench(tmp_path, "script.py")
    assert done.returncode == 2 and done.stdout == "", done.stderr
    errors = [line for line in done.stderr.splitlines() if line.startswith("dynadiag: error: ")]
    assert len(errors) == 1 and "script.py ended and compiled nothing" in errors[0]
    assert "Traceback" not in done.stderr


def test_a_back_end_that_torch_lacks_is_refused_before_anything_is_timed(tmp_path):
    done = bench(tmp_path, PROGRAM, "--arms", "eager,nosuch", "--in-process")
    assert done.returncode == 2 and done.stdout == "", done.stderr
    errors = [line for line in done.stderr.splitlines() if line.startswith("dynadiag: error: ")]
    assert len(errors) == 1 and "torch has no back end 'nosuch' here" in errors[0]
    assert "Traceback" not in done.stderr and "nosuch: loading" not in done.stderr


def test_a_function_whose_arguments_nobody_recorded_cannot_be_timed():
    with pytest.raises(UsageError, match=r"needs arguments \(batch\) that were not recorded"):
        load_step(f"{PROGRAM}:with_arguments", CompileSwitch(arm="eager", overrides={}))


def test_a_program_that_raises_has_a_row_that_says_so(tmp_path):
    done = bench(tmp_path, "--fn", f"{PROGRAM}:raises", "--arms", "eager,eager", "--in-process")
    assert done.returncode == 2
    said = " ".join(done.stdout.split())  # lines are broken by the length of the program's path
    assert "RuntimeError: this program" in said and "Traceback" not in done.stdout + done.stderr


def test_a_program_that_registers_a_back_end_can_be_loaded_for_each_arm_of_one_process(tmp_path):
    for arm in ("eager", "backend:eager"):
        with pytest.raises(UserCodeError, match="RuntimeError: this program"):
            load_step(f"{PROGRAM}:raises", CompileSwitch(arm=arm, overrides={}))


def test_arms_in_one_process_agree(tmp_path):
    done = bench(
        tmp_path,
        "--fn",
        f"{PROGRAM.with_name('small_programs.py')}:forward_and_backward",
        "--arms",
        "eager,backend:eager",
        "--in-process",
        "--json",
    )
    document = json.loads(done.stdout)
    assert [arm["status"] for arm in document["arms"]] == ["ok", "ok"], done.stderr
    assert {item["status"] for item in document["correctness"]} == {"PASS"}
    assert any("shared one process" in note for note in document["notes"])
