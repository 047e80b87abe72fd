"""Sweeps of small programs: every way to end is a row, each task has one row, and what was done is not done again."""

from __future__ import annotations

import itertools
import os
import re
import signal
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path

import pytest

from dynadiag.errors import OutputError
from dynadiag.sweep import perform, rows, session, show
from dynadiag.sweep.matrix import read_matrix
from dynadiag.sweep.session import TASKS, SweepOptions, SweepState, sweep
from tests.unit.sweep.sweep_builders import row_of, write_matrix

ROOT = Path(__file__).parents[3]


def run(matrix, folder, **options):
    return sweep(read_matrix(matrix), folder, SweepOptions(**{"workers": 4, **options}), lambda state, left_s: None)


def test_a_crash_a_hang_and_too_little_memory_are_rows(tmp_path):
    words = ["fine", "crash", "hang", "raise", "skip", "memory"]
    state = run(write_matrix(tmp_path, words, timeout_s=8, memory_gb=0.3), tmp_path / "out", workers=6)
    assert {row.subject.split()[1]: row.status for row in state.rows} == {
        "fine": "done", "crash": "crashed", "hang": "timeout", "raise": "failed", "skip": "skipped", "memory": "out_of_memory",
    }  # fmt: skip
    said = {row.subject.split()[1]: row.reason for row in state.rows}
    assert said["fine"] is None
    assert said["crash"] == "ended by SIGSEGV"
    assert said["raise"] == "ValueError: no such luck"
    assert said["skip"] == "it needs a download"
    assert re.fullmatch(r"not finished after \d+ s", said["hang"])
    assert rows.read(tmp_path / "out") == list(state.rows)
    assert {row.subject.split()[1] for row in state.failed} == {"crash", "hang", "raise", "memory"}
    fine = next(row for row in state.rows if row.status == "done")
    assert (tmp_path / "out" / TASKS / fine.key / "output.txt").read_text() == "begun fine\n"


DAEMON = """import os, sys, time
reading, writing = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open("daemon.pid", "w").write(str(os.getpid()))
        os.write(writing, b".")
        for descriptor in range(64):
            try:
                os.close(descriptor)
            except OSError:
                pass
        time.sleep(300)
    os._exit(0)
os.wait()
os.read(reading, 1)
time.sleep(300 if sys.argv[1] == "hang" else 0)
"""


@pytest.mark.parametrize(("word", "status"), [("fine", "done"), ("hang", "timeout")])
def test_a_daemon_that_a_task_left_behind_ends_with_it(tmp_path, word, status):
    """It has a session of its own and another parent; its environment tells whose it is."""
    matrix = write_matrix(tmp_path, [word], timeout_s=60 if word == "fine" else 10)
    (tmp_path / "p.py").write_text(DAEMON)
    (row,) = run(matrix, tmp_path / "out").rows
    daemon = Path("/proc", (tmp_path / "daemon.pid").read_text())
    assert row.status == status
    assert not daemon.exists() or "Z" in (daemon / "stat").read_text().rpartition(")")[2][:4]


def test_a_failure_of_a_fake_implementation_is_named_by_what_it_was(tmp_path):
    # As torch 2.11 says it; the first line alone is the same for every such failure.
    said = (
        "torch._dynamo.exc.TorchRuntimeError: RuntimeError when making fake tensor call\\n"
        "  Explanation: Dynamo failed to run FX node with fake tensors: call_function linear(*(FakeTensor(..., size=(4, 16)),), **{}): "
        "got RuntimeError('a and b must have same reduction dim, but got [4, 16] X [24, 8].')\\n"
        "  Hint: Your code may result in an error when running in eager.\\n"
    )
    (tmp_path / "p.py").write_text(f'import sys\nsys.exit("""{said}""")\n')
    (tmp_path / "m.toml").write_text('verbs = ["run"]\n[subjects]\nscripts = ["p.py"]\n')
    (row,) = run(tmp_path / "m.toml", tmp_path / "out").rows
    expected = "RuntimeError('a and b must have same reduction dim, but got [4, 16] X [24, 8].')"
    assert row.reason == f"torch._dynamo.exc.TorchRuntimeError: RuntimeError when making fake tensor call: {expected}"


def test_what_a_task_leaves_behind_is_ended(tmp_path):
    mark = os.urandom(8).hex()
    run(write_matrix(tmp_path, [f"leave {mark}"]), tmp_path / "out")
    until = time.monotonic() + 120  # the signal has been sent; on a busy machine a process dies of it later
    while left := [one for one in Path("/proc").glob("[0-9]*/environ") if f"LEFT={mark}".encode() in _read(one)]:
        assert time.monotonic() < until, left
        time.sleep(0.05)


def _read(path):
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_only_what_has_no_row_runs_again(tmp_path):
    count = tmp_path / "count"
    matrix = write_matrix(tmp_path, [f"count {count}", "raise"])
    first = run(matrix, tmp_path / "out")
    second = run(matrix, tmp_path / "out")
    assert (first.before, second.before) == (0, 2)
    assert count.read_text() == "x"
    journal = (tmp_path / "out" / rows.JOURNAL).read_bytes()
    third = run(matrix, tmp_path / "out", retry=True)
    assert third.before == 1  # the one that failed ran again
    assert len((tmp_path / "out" / rows.JOURNAL).read_bytes()) > len(journal)
    assert len(third.rows) == len(rows.read(tmp_path / "out")) == 2


def test_shards_are_disjoint_and_complete(tmp_path):
    matrix = write_matrix(tmp_path, [f"fine {number}" for number in range(12)])
    parts = [run(matrix, tmp_path / f"out{number}", shard=(number, 3)) for number in (1, 2, 3) if number]
    keys = [row.key for part in parts for row in part.rows]
    assert len(keys) == len(set(keys)) == 12
    assert len(rows.merged([tmp_path / f"out{number}" for number in (1, 2, 3)])) == 12


def test_a_killed_driver_loses_only_what_was_running(tmp_path):
    hang = f"hang {os.urandom(8).hex()}"
    matrix = write_matrix(tmp_path, ["fine", hang], timeout_s=100)
    driver, hanging = _driver(matrix, tmp_path / "out", hang)
    with pytest.raises(OutputError, match="another sweep"):
        run(matrix, tmp_path / "out")
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    assert [row.status for row in rows.read(tmp_path / "out")] == ["done"]
    _until(lambda: not _running(hanging))  # the guardian ends it
    write_matrix(tmp_path, ["fine", hang], timeout_s=1)
    state = run(matrix, tmp_path / "out")
    assert state.before == 1
    assert [row.status for row in state.rows] == ["done", "timeout"]


def test_ctrl_c_ends_what_is_running_and_keeps_the_rows(tmp_path):
    hang = f"hang {os.urandom(8).hex()}"
    matrix = write_matrix(tmp_path, ["fine", hang], timeout_s=100)
    driver, hanging = _driver(matrix, tmp_path / "out", hang)
    driver.send_signal(signal.SIGINT)
    assert driver.wait(120) == 130
    assert (tmp_path / "said").read_text().splitlines()[
        -1
    ] == f"dynadiag: interrupted: the rows so far are in {tmp_path / 'out'}, and the same command continues the sweep"
    _until(lambda: not _running(hanging), 60)  # its own timeout is 100 s
    assert [row.status for row in rows.read(tmp_path / "out")] == ["done"]


def _driver(matrix, out, hang):
    """The command in a process of its own, once its hanging task runs, and the words of that task, which no other sweep's task has."""
    command = [sys.executable, "-m", "dynadiag", "sweep", "--workers", "1", "--out", str(out), str(matrix)]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'cli'}"}
    with (out.parent / "said").open("w") as said:
        driver = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=said)
    hanging = os.fsencode("\0".join(["p.py", *hang.split()]))
    _until(lambda: (out / rows.JOURNAL).exists() and _running(hanging))
    return driver, hanging


def _running(words):
    return any(words in _read(one) for one in Path("/proc").glob("[0-9]*/cmdline"))


def _until(happened, seconds=120):
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.parametrize("name", ["notes.txt", "report.html", "rows.jsonl", "rows.parquet", "tasks/plan.txt", "dynadiag-sweep.json"])
def test_a_folder_with_something_else_is_refused_and_stays_as_it_is(tmp_path, name):
    file = tmp_path / "mine" / name
    file.parent.mkdir(parents=True)
    file.write_text('{"mine": "keep"}\n')
    with pytest.raises(OutputError, match="holds something that is no sweep"):
        run(write_matrix(tmp_path, ["fine"]), tmp_path / "mine")
    assert file.read_text() == '{"mine": "keep"}\n' and [one.name for one in (tmp_path / "mine").rglob("*") if one.is_file()] == [file.name]


def test_a_sweep_without_a_row_and_one_of_before_there_was_a_marker_go_on(tmp_path):
    matrix, out = write_matrix(tmp_path, ["fine"]), tmp_path / "out"
    with session._opened(out):  # killed before the first end
        pass
    assert len(run(matrix, out).rows) == 1
    (out / rows.MARKER).unlink()
    state = run(matrix, out)
    assert state.before == 1 and (out / rows.MARKER).is_file()


def test_a_row_that_cannot_be_written_is_said_and_the_others_are_kept(tmp_path, monkeypatch):
    matrix = write_matrix(tmp_path, ["fine", "raise", "skip"])
    appended = rows.append

    def full(folder, row):
        if row.status == "failed":
            raise OSError(28, "No space left on device")
        appended(folder, row)

    monkeypatch.setattr(rows, "append", full)
    state = run(matrix, tmp_path / "out")
    assert state.unwritten == ("p.py raise (default, run): No space left on device",)
    assert {row.status for row in rows.read(tmp_path / "out")} == {"done", "skipped"}


def test_failures_of_one_kind_are_reduced_once(tmp_path, monkeypatch):
    reducer = tmp_path / "reducer.py"
    size = '{"nodes": 9}, "size_after": {"nodes": 2}'
    reducer.write_text(
        "import pathlib, sys\nfolder = pathlib.Path(sys.argv[1])\nfolder.mkdir()\n"
        f'(folder / \'minify.json\').write_text(\'{{"kind": "crash", "proven": true, "size_before": {size}}}\')\n'
    )
    command = perform._command

    def reducing(task, folder, limits):
        return [sys.executable, str(reducer), str(folder)] if task.verb == "minify" else command(task, folder, limits)

    monkeypatch.setattr(perform, "_command", reducing)
    matrix = write_matrix(tmp_path, ["fine", "crash 1", "crash 2", "raise"])
    state = run(matrix, tmp_path / "out", minify=True)
    assert [(row.verb, row.status, row.verdict) for row in state.rows[4:]] == [("minify", "done", "crash: 9 nodes to 2 nodes, proven")] * 2
    assert {row.subject.split()[1] for row in state.rows[4:]} == {"crash", "raise"}
    told = show.document_of(state)
    assert told.headlines[0].what == "4 tasks"  # a reduction is no task of the matrix
    again = run(matrix, tmp_path / "out", minify=True)
    assert {row.key for row in again.rows} == {row.key for row in state.rows}
    assert len(rows.read(tmp_path / "out")) == 6


def test_a_task_gets_gpus_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    (tmp_path / "gpu.py").write_text("import os, sys, time\ntime.sleep(0.2)\nprint(os.environ['CUDA_VISIBLE_DEVICES'])\n")
    scripts = ", ".join(f'"gpu.py {number}"' for number in range(5))
    (tmp_path / "m.toml").write_text(f'verbs = ["run"]\n[subjects]\nscripts = [{scripts}]\n[[arms]]\nname = "g"\ngpus = 1\n')
    state = run(tmp_path / "m.toml", tmp_path / "out")
    said = [(tmp_path / "out" / TASKS / row.key / "output.txt").read_text().strip() for row in state.rows]
    assert len(said) == 5
    assert set(said) == {"4", "7"}
    assert [row.gpus for row in state.rows] == said
    spans = sorted((row.gpus, datetime.fromisoformat(row.started_at).timestamp(), row.wall_s) for row in state.rows)
    assert all(one[1] + one[2] <= two[1] + 0.002 for one, two in itertools.pairwise(spans) if one[0] == two[0])  # never shared


def test_rows_of_start_and_numerics_have_their_verdicts(tmp_path, monkeypatch):
    """Their exit status 1 is a verdict and no failure."""
    results = {
        "start": '{"missed": 1, "compilations": [{}, {}]}',
        "numerics": '{"summary": {"faults": 1, "rounding": 2, "equal": 0, "skipped": 0}}',
    }
    commands = []

    def answering(task, folder, limits):
        commands.append(command(task, folder, limits))
        write = f"folder.mkdir(); (folder / '{task.verb}.json').write_text('{results[task.verb]}'); raise SystemExit(1)"
        return [sys.executable, "-c", f"import pathlib; folder = pathlib.Path({str(folder)!r}); {write}"]

    command = perform._command
    monkeypatch.setattr(perform, "_command", answering)
    (tmp_path / "train.py").touch()
    (tmp_path / "m.toml").write_text('verbs = ["start", "numerics"]\n[subjects]\nscripts = ["train.py 3"]\n')
    state = run(tmp_path / "m.toml", tmp_path / "out")
    assert {row.verb: (row.status, row.verdict) for row in state.rows} == {
        "start": ("done", "1 of 2 compilations not warm"),
        "numerics": ("done", "1 faults, 2 within rounding, 0 equal, 0 not compared"),
    }
    assert sorted(words[3] for words in commands) == ["numerics", "start"]
    assert all("--out" in words and words[-1] == "3" for words in commands)


@pytest.mark.parametrize(
    ("changed", "tone"),
    [
        ({"verb": "parity", "verdict": "0 differences in 2 of 2 graphs"}, "good"),
        ({"verb": "parity", "verdict": "0 differences in 0 of 1 graphs"}, "unclear"),
        ({"verb": "parity", "verdict": "2 differences in 1 of 1 graphs"}, "unclear"),
        ({"verb": "bench", "verdict": "default SLOWER 0.37x"}, "plain"),
        ({"verb": "explain", "break_sites": 0}, "good"),
        ({"verb": "explain", "break_sites": 1}, "unclear"),
        ({"verb": "explain", "status": "timed out"}, "bad"),
    ],
)
def test_green_in_the_matrix_is_what_was_seen_to_be_well(tmp_path, changed, tone):
    state = SweepState(folder=tmp_path, tasks=(), rows=(), before=0)
    assert show._cell(state, row_of(**({"status": "done", "recompiles": 0, "fallbacks": 0} | changed)))["tone"] == tone
