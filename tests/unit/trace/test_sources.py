"""What a path may be: a run directory, a log, a folder of logs, or nothing that can be read."""

import gzip
import json
import os
import shutil
import subprocess
import sys
import threading

import pytest

from dynadiag.errors import UnreadableInputError
from dynadiag.process_identity import identity
from dynadiag.trace import graph_details, load, read_payload
from dynadiag.trace.sources import is_recording, recording_at


def fails(path):
    with pytest.raises(UnreadableInputError) as caught:
        load(path)
    assert "\n" not in caught.value.message and caught.value.exit_code == 2
    return caught.value.message


def test_what_cannot_be_read_gets_one_line(tmp_path):
    assert "No such file" in fails(tmp_path / "missing")
    assert "No such file" in fails(tmp_path / "new\nline") and "?" in fails(tmp_path / "new\nline")
    assert "name is not valid" in fails("a\0b")
    (tmp_path / "empty.log").touch()
    assert fails(tmp_path / "empty.log").endswith("empty.log is empty")
    (tmp_path / "junk.bin").write_bytes(bytes(range(256)) * 50)
    assert "looked for" in fails(tmp_path / "junk.bin")
    folder = tmp_path / "folder"
    folder.mkdir()
    assert fails(folder).startswith(f"no logs in {folder}; looked for a run directory (dynadiag-run.json), TORCH_TRACE logs")
    (folder / "a.log").write_text("hello\n")
    assert fails(folder).startswith("none of the 1 logs") or "contains no record" in fails(folder)


def test_pipes_devices_and_loops_do_not_hang(tmp_path, log):
    os.mkfifo(tmp_path / "dedicated_log_torch_trace_pipe.log")
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "dedicated_log_torch_trace_zero.log").symlink_to("/dev/zero")
    (tmp_path / "dedicated_log_torch_trace_gone.log").symlink_to(tmp_path / "nowhere")
    log.start(0).metrics(0).write(tmp_path)
    found = []
    reader = threading.Thread(target=lambda: found.append(load(tmp_path)), daemon=True)
    reader.start()
    reader.join(600)
    assert found and len(found[0].processes) == 1
    assert "neither a file nor a folder" in fails(tmp_path / "dedicated_log_torch_trace_pipe.log")
    assert "neither a file nor a folder" in fails("/dev/zero")


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_unreadable_file(tmp_path, log):
    path = log.start(0).write(tmp_path)
    path.chmod(0)
    assert "Permission denied" in fails(path)


def test_folder_of_ranks_in_order(new_log, tmp_path):
    for rank in (10, 2, 1):
        new_log(100 + rank).start(0).metrics(0).write(tmp_path, f"dedicated_log_torch_trace_rank_{rank}_abc.log")
    (tmp_path / "notes.txt").write_text("Graph break in user code at a.py:1\n")
    run = load(tmp_path)
    assert [process.rank for process in run.processes] == [1, 2, 10]
    assert [frame.id for frame in run.frames] == ["f0", "f1", "f2"] and run.frame("f2").key.process == 2


def test_rank_in_the_records(log, tmp_path):
    run = load(log.record("describe_storage", {}, rank=5).start(0).metrics(0, kind="compilation_metrics").write(tmp_path))
    assert run.processes[0].rank is None
    log.record("str", ["a", 9], rank=5)
    assert load(log.write(tmp_path)).processes[0].rank == 5


def test_run_directory_says_what_the_supervisor_saw(log, tmp_path):
    facts = {
        "format": 1,
        "dynadiag": "0.1.0",
        "command": ["python", "a.py"],
        "exit_status": 7,
        "signal": None,
        "timed_out": True,
        "ended_at": 3,
    }
    (tmp_path / "dynadiag-run.json").write_text(json.dumps(facts))
    info = load(tmp_path).info
    assert (info.dynadiag, info.command, info.exit_status, info.timed_out, info.interrupted, info.ended_at) == (
        "0.1.0", ("python", "a.py"), 7, True, False, None)  # fmt: skip
    assert info.directory == str(tmp_path)
    log.start(0).metrics(0).write(tmp_path)
    (tmp_path / "dynadiag-run.json").write_text("{")
    run = load(tmp_path)
    assert len(run.frames) == 1 and run.notes == ("dynadiag-run.json is damaged: what the supervisor recorded is not known",)


def test_latest_may_be_a_link_or_a_text_file(log, tmp_path):
    run_folder = tmp_path / "0001-train"
    run_folder.mkdir()
    log.start(0).metrics(0).write(run_folder)
    (tmp_path / "latest").write_text("0001-train\n")
    assert len(load(tmp_path / "latest").frames) == 1
    (tmp_path / "latest").unlink()
    (tmp_path / "latest").symlink_to("0001-train")
    assert len(load(tmp_path / "latest").frames) == 1


def test_gzip(log, tmp_path, graph_text):
    log.start(0).record("dynamo_output_graph", {}, graph_text, frame=0).metrics(0)
    path = tmp_path / "dedicated_log_torch_trace_x.log.gz"
    path.write_bytes(gzip.compress(log.data))
    run = load(tmp_path)
    assert read_payload(run.graphs[0].text) == graph_text
    many = b"".join(f'V1121 07:32:10.0 4242 x.py:1] {{"str": ["{os.urandom(40).hex()}", {n}]}}\n'.encode() for n in range(60_000))
    path.write_bytes(gzip.compress(log.data + many, 1)[:-1000])
    cut = load(path)
    assert len(cut.frames) == 1 and cut.notes == ("dedicated_log_torch_trace_x.log.gz could not be read completely",)


def test_payload_of_a_log_that_changed(log, tmp_path, graph_text):
    path = log.start(0).record("dynamo_output_graph", {}, graph_text, frame=0).metrics(0).write(tmp_path)
    ref = load(path).graphs[0].text
    path.write_bytes(b"short")
    with pytest.raises(UnreadableInputError, match="shorter"):
        read_payload(ref)
    with pytest.raises(UnreadableInputError):
        graph_details(ref)
    path.unlink()
    with pytest.raises(UnreadableInputError, match="can no longer be read"):
        read_payload(ref)


def test_progress_is_told(log, tmp_path, monkeypatch):
    monkeypatch.setattr("dynadiag.trace.records.BLOCK_BYTES", 300)
    path = log.start(0).metrics(0).write(tmp_path)
    told = []
    load(path, progress=lambda done, total: told.append((done, total)))
    size = path.stat().st_size
    assert told[-1] == (size, size) and len(told) >= 3 and told == sorted(told)


def marked(folder, **facts):
    folder.mkdir(exist_ok=True)
    (folder / "dynadiag-run.json").write_text(json.dumps({"format": 1, "dynadiag": "0", "command": ["x.py"], "running": True, **facts}))
    return load(folder).info


def test_a_run_that_still_runs_is_told_from_one_whose_dynadiag_was_killed_and_from_a_copy(tmp_path):
    me = identity()
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(6000)"])
    theirs = identity(child.pid)
    states = [(marked(tmp_path / "r", supervisor=process)) for process in (me, theirs)]
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # a signal that was sent is not yet one that has ended its process
    dead_but_not_waited_for = marked(tmp_path / "r", supervisor=theirs)
    child.wait()
    states += [dead_but_not_waited_for, marked(tmp_path / "r", supervisor=theirs), marked(tmp_path / "r", supervisor=me | {"start": 1})]
    assert [(info.running, info.killed, info.unended) for info in states] == [(True, False, False)] * 2 + [(False, True, False)] * 3
    strange = ({"pid": os.getpid()}, {}, "me", {"pid": "x", "start": []})
    for other in (me | {"boot": "another machine"}, me | {"namespace": "pid:[1]"}, *strange):
        info = marked(tmp_path / "r", supervisor=other)
        assert (info.running, info.killed, info.unended) == (False, False, True), other


def test_files_that_say_that_recording_stopped(tmp_path):
    for name in ("stopped_12_EFBIG", "stopped_13_ENOSPC", "stopped_14_WRONG", "stopped_x_EFBIG", "stopped_99999999_EFBIG"):
        (tmp_path / name).touch()
    info = marked(tmp_path, running=False, exit_status=0, stopped=["recording stopped: x.log could not be written completely", 7])
    assert info.stopped == (
        "recording stopped: x.log could not be written completely",
        "recording stopped in process 12: File too large",
        "recording stopped in process 13: No space left on device",
        "recording stopped in process 14: its log could not be written",
    )


def test_a_log_that_could_not_be_written_to_its_end_is_told_once(tmp_path, new_log):
    """The recorder left word of it, and the reader sees that the last record is cut off: it said "and in 1 more"."""
    log = new_log(12).start(0).metrics(0).write(tmp_path)
    log.write_bytes(log.read_bytes()[:-20])
    marked(tmp_path, running=False, exit_status=0)
    assert [text.partition(" is ")[2] for text in load(tmp_path).info.stopped] == ["cut off"]
    (tmp_path / "stopped_12_EFBIG").touch()
    assert load(tmp_path).info.stopped == ("recording stopped in process 12: File too large",)


def test_several_runs_are_listed_and_not_read_as_one(tmp_path, new_log):
    runs = tmp_path / "dynadiag-runs"
    runs.mkdir()
    for number, facts in enumerate([{"running": False, "exit_status": 0}, {"supervisor": identity() | {"start": 1}}], start=1):
        folder = runs / f"000{number}-x"
        marked(folder, started_at="2026-01-02T03:04:05Z", **facts)
        new_log(number).start(0).metrics(0).write(folder)
    for place in (runs, tmp_path):
        with pytest.raises(UnreadableInputError, match="contains 2 runs: pass one of them, for example .*/0002-x") as caught:
            load(place)
        first, second = caught.value.details
        assert first.endswith("0001-x  x.py  2026-01-02T03:04:05Z  exit 0")
        assert second.endswith("0002-x  x.py  2026-01-02T03:04:05Z  dynadiag was killed")
    loose = new_log(3).start(0).metrics(0).write(tmp_path, "dedicated_log_torch_trace_rank_0_x.log")
    run = load(tmp_path)
    assert len(run.processes) == 1
    assert any(note.startswith("2 run directories") for note in run.notes)
    loose.unlink()
    shutil.rmtree(runs / "0001-x")
    assert load(tmp_path).info.directory == str(runs / "0002-x"), "the only one is meant"


def test_latest_as_a_text_file_is_the_run_that_it_names(tmp_path):
    run = tmp_path / "0001-x"
    marked(run, running=False, exit_status=0)
    latest = tmp_path / "latest"
    latest.write_text("0001-x\n")
    assert (recording_at(latest), load(latest).info.directory) == (run, str(run))
    for wrong in ("../0001-x", "missing", "", "0001-x\0", "x" * 5000, str(run)):
        latest.write_text(wrong)
        assert recording_at(latest) == latest


@pytest.mark.parametrize("content", [b"import os\nos.mkdir('acted')\n", b"", b"../../etc", b"\xff\x00", b"0009-gone\n", b" " * 100_000])
def test_latest_that_names_no_run_is_never_run_as_a_script(content, tmp_path):
    runs = tmp_path / "dynadiag-runs"
    runs.mkdir()
    (runs / "latest").write_bytes(content)
    with pytest.raises(UnreadableInputError, match="does not name a run next to it"):
        is_recording(runs / "latest")


@pytest.mark.parametrize("inside", ["dynadiag-run.json", "dedicated_log_torch_trace_1_abc.log"])
def test_a_recording_with_a_program_in_it_is_read_and_not_run(inside, tmp_path):
    (tmp_path / "__main__.py").write_text("raise SystemExit(7)\n")
    assert not is_recording(tmp_path)
    (tmp_path / inside).write_text("{}")
    assert is_recording(tmp_path)
