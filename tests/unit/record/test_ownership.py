"""A run directory of ours is known by a seal that whoever sends one cannot make."""

import json
import os
import shutil
import stat
import time

import pytest

from dynadiag.record.directory import MARKER, chosen_directory, is_ours, new_directory, seal_again, write_marker

LOG = "dedicated_log_torch_trace_1_abc.log"


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "dynadiag"


@pytest.fixture
def run(tmp_path):
    directory = new_directory(tmp_path, "train.py")
    (directory / LOG).write_text("V1121")
    write_marker(directory, {"dynadiag": "1"})
    return directory


def logs(run):
    return [run / LOG]


def marker(run, **changes):
    facts = json.loads((run / MARKER).read_text()) | changes
    (run / MARKER).write_text(json.dumps(facts))


def test_a_run_recorded_here_is_ours_and_private(run, state):
    assert is_ours(run) and is_ours(run, logs(run)) and is_ours(run.parent / "latest", logs(run))
    assert stat.S_IMODE(run.stat().st_mode) == 0o700 and stat.S_IMODE((run / MARKER).stat().st_mode) == 0o600
    assert stat.S_IMODE((state / "key").stat().st_mode) == 0o600 and [item.name for item in state.iterdir()] == ["key"]


def test_a_chosen_directory_is_private_too(tmp_path):
    assert stat.S_IMODE(chosen_directory(tmp_path / "a" / "b", force=False).stat().st_mode) == 0o700


def test_a_copy_or_another_place_is_not_ours(run, tmp_path):
    shutil.copytree(run, tmp_path / "copy", copy_function=shutil.copy2)
    assert not is_ours(tmp_path / "copy")
    run.rename(tmp_path / "moved")
    assert not is_ours(tmp_path / "moved")


def test_another_user_of_the_same_place_is_not_us(run, state):
    (state / "key").write_bytes(os.urandom(32))
    assert not is_ours(run)


@pytest.mark.parametrize(
    "seal",
    [None, 1, [], {}, {"at_ns": 1}, {"at_ns": True, "code": "0"}, {"at_ns": 2**70, "code": "0" * 64}, {"at_ns": 1, "code": "\u00e9"}],
)
def test_a_seal_that_is_made_up_is_none(run, seal):
    marker(run, seal=seal)
    assert not is_ours(run)


def test_a_seal_cannot_be_moved_in_time(run):
    seal = json.loads((run / MARKER).read_text())["seal"]
    marker(run, seal={**seal, "at_ns": seal["at_ns"] + 10**12})
    assert not is_ours(run)


def test_logs_that_changed_after_the_seal_or_lie_elsewhere_are_not_ours(run, tmp_path, monkeypatch):
    (tmp_path / "other.log").write_text("")
    assert not is_ours(run, [tmp_path / "other.log"])
    (run / "linked.log").symlink_to(tmp_path / "other.log")
    assert not is_ours(run, [run / "linked.log"])
    monkeypatch.setattr(time, "time_ns", lambda: (run / LOG).stat().st_ctime_ns - 10 * 10**9)
    write_marker(run, {"dynadiag": "1"})
    assert is_ours(run) and not is_ours(run, logs(run))
    monkeypatch.undo()


def test_a_seal_is_renewed_after_the_probe_wrote(run):
    before = json.loads((run / MARKER).read_text())
    seal_again(run)
    after = json.loads((run / MARKER).read_text())
    assert after["seal"] != before.pop("seal") and {**before, "seal": None} == {**after, "seal": None} and is_ours(run, logs(run))


def test_without_a_place_for_the_key_nothing_is_ours(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    directory = new_directory(tmp_path, "train.py")
    write_marker(directory, {"dynadiag": "1"})
    assert json.loads((directory / MARKER).read_text())["seal"] is None and not is_ours(directory)


def test_a_key_that_others_can_read_is_none(run, state):
    (state / "key").chmod(0o644)
    assert not is_ours(run)


def test_a_marker_that_is_a_link_or_a_pipe_is_none(run):
    (run / MARKER).rename(run / "real")
    (run / MARKER).symlink_to("real")
    assert not is_ours(run)
    (run / MARKER).unlink()
    os.mkfifo(run / MARKER)
    assert not is_ours(run)
