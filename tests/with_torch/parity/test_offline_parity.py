"""`dynadiag parity`: a script recorded, its graphs replayed over calls that it did not make."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from dynadiag import report, trace

HERE = Path(__file__).parent
PROGRAM = HERE / "offline_program.py"
# A slow or loaded machine must not end a scenario.
LIMITS = ("--timeout", "900", "--budget", "3000")
SCHEMA = json.loads((HERE.parents[2] / "docs" / "parity.schema.json").read_text())


def dynadiag(*arguments, folder):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "dynadiag", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment)


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    folder = tmp_path_factory.mktemp("parity")
    finished = dynadiag("parity", *LIMITS, "--out", folder / "run", "--emit-test", folder / "tests", PROGRAM, folder=folder)
    finished.folder = folder
    return finished


@pytest.fixture(scope="module")
def result(done):
    return json.loads((done.folder / "run" / "parity.json").read_text())


def graph(result, function):
    (found,) = (one for one in result["graphs"] if one["function"] == function)
    return found


def test_only_the_function_that_is_wrong_is_found(done, result):
    assert done.returncode == 1, done.stderr
    assert done.stdout == "a break\n"
    jsonschema.validate(result, SCHEMA)
    assert (result["happened"]["calls_compared"], result["happened"]["findings"]) == (7, [])
    wrong = graph(result, "later")["graph"]
    assert [(one["code"], one["graph"], one["layer"]) for one in result["findings"]] == [
        ("DM30", wrong, "aot_eager"),
        ("DM31", wrong, "aot_eager"),
    ]


def test_a_finding_has_the_line_of_the_write_and_the_smallest_tensor(result):
    finding = result["findings"][0]
    assert (finding["where"]["line"], finding["where"]["code"]) == (7, "x.mul_(2)")
    assert (finding["tensor"]["where"], finding["tensor"]["elements"]) == ("output", 4)
    assert finding["would"] == "would be wrong if `x` and `y` overlapped in memory, on a call after one where they do not"


def test_a_report_on_the_run_tells_what_could_happen_apart_from_what_did(done, result):
    run = done.folder / "run"
    made = report.build_with_replay(trace.load(run), run)
    could = [one for one in made.findings if one.title.startswith("Could happen: ")]
    assert [(one.code, one.severity, one.where.code) for one in could] == [
        ("DM30", "warning", "x.mul_(2)"),
        ("DM31", "warning", "x.mul_(2)"),
    ]
    assert {graph(result, "later")["graph"]} == {one.evidence[0] for one in could}
    assert (made.parity.calls_different, made.replayed.compared) == (0, result["summary"]["compared"])


def test_each_graph_says_what_was_tried_and_what_not(result):
    assert {one["outcome"] for one in graph(result, "clean")["tried"]} == {"equal"}
    assert [one["values_compared"] for one in graph(result, "dropped")["tried"]] == [False]
    assert graph(result, "trained")["tried"][0]["outcome"] == "equal"
    assert "own_backend" in graph(result, "seen")["why_not"]
    resumed = next(one for one in result["graphs"] if one["function"].startswith("torch_dynamo_resume"))
    assert any("graph break" in one["reason"] for one in resumed["skipped"])


@pytest.mark.any_torch  # test_offline_emitted.py runs each kind of them
def test_emitted_tests_fail_now_and_stand_alone(done, result):
    files = sorted((done.folder / "tests").iterdir())
    assert [one["test"] for one in result["findings"]] == [str(file) for file in reversed(files)]
    assert all("import dynadiag" not in file.read_text() for file in files)
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files], capture_output=True, text=True, cwd=done.folder
    )
    assert "2 failed" in run.stdout


@pytest.mark.any_torch
def test_one_graph_of_a_run_and_its_exit_status(done, result):
    folder = done.folder
    (folder / "prints.py").write_text("print('half a line', end='', flush=True)")  # on the stdout of the process that answers
    options = (*LIMITS, "--format", "json", "--load", "prints.py")
    clean = dynadiag("parity", *options, f"{folder / 'run'}#{graph(result, 'clean')['graph']}", folder=folder)
    assert (clean.returncode, json.loads(clean.stdout)["findings"]) == (0, [])
    unknown = dynadiag("parity", f"{folder / 'run'}#g99", folder=folder)
    assert (unknown.returncode, unknown.stderr.count("\n")) == (2, 1)
    (folder / "empty.log").write_text("")
    nothing = dynadiag("parity", folder / "empty.log", folder=folder)
    assert nothing.returncode in (2, 5)
    assert nothing.stderr.count("\n") == 1
