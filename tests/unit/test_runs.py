"""`dynadiag runs`: which run directories are listed and removed, and which are left alone."""

from __future__ import annotations

import json
import os
import time
from datetime import UTC, datetime, timedelta

import pytest
from typer.testing import CliRunner

from dynadiag.process_identity import identity
from dynadiag.runs import run_before
from dynadiag_cli.app import app
from dynadiag_cli.main import main


def make(folder, name, *, days=1.0, **marker):
    run = folder / name
    (run / "trace").mkdir(parents=True)
    (run / "trace" / "log").write_bytes(b"x" * 1_000_000)
    began = datetime.now(UTC) - timedelta(days=days)
    (run / "dynadiag-run.json").write_text(
        json.dumps({"command": ["python", "train.py"], "started_at": f"{began:%Y-%m-%dT%H:%M:%SZ}", "exit_status": 0} | marker)
    )
    return run


@pytest.fixture
def folder(tmp_path):
    for number, days in enumerate((40, 20, 2), 1):
        make(tmp_path, f"{number:04}-train", days=days)
    (tmp_path / "latest").symlink_to("0003-train")
    (tmp_path / "notes").mkdir()
    return tmp_path


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def run(*words):
    return CliRunner().invoke(app, ["runs", *map(str, words)])


def test_runs_are_listed_and_nothing_is_deleted(folder):
    make(folder, "0010-train", exit_status=1)
    done = run(folder)
    rows = done.stdout.splitlines()
    assert [row.split()[0] for row in rows[:-1]] == ["0001-train", "0002-train", "0003-train", "0010-train"]
    assert "exit 1  1.0 MB  python train.py" in rows[3] and rows[-1] == "4 of 4 runs: 4.0 MB"
    assert len(json.loads(run(folder, "--json").stdout)) == 4
    assert len(names(folder)) == 6


def test_old_runs_are_deleted_and_other_folders_stay(folder):
    assert "0 of 3 runs: would be deleted" in run(folder, "--keep", 5, "--dry-run").stdout
    assert "2 of 3 runs: would be deleted" in run(folder, "--keep", 1, "--dry-run").stdout
    assert "1 of 3 runs: deleted" in run(folder, "--older-than", 30).stdout
    assert names(folder) == ["0002-train", "0003-train", "latest", "notes"]
    assert "1 of 2 runs: deleted" in run(folder, "--keep", 1).stdout
    assert names(folder) == ["0003-train", "latest", "notes"]
    run(folder, "--keep", 0)
    assert names(folder) == ["notes"]


def test_the_newest_are_those_that_began_last_whatever_their_names(tmp_path):
    for name, days in (("zero", 9), ("one", 3), ("two", 6)):
        make(tmp_path, name, days=days)
    assert [row.split()[0] for row in run(tmp_path).stdout.splitlines()[:-1]] == ["zero", "two", "one"]
    run(tmp_path, "--keep", 1)
    assert names(tmp_path) == ["one"]


def test_both_options_must_allow_it(folder):
    run(folder, "--keep", 1, "--older-than", 30)
    assert names(folder)[:2] == ["0002-train", "0003-train"]


def test_a_run_that_may_go_on_is_never_deleted(folder):
    make(folder, "0004-live", exit_status=None, running=True, supervisor=identity(os.getpid()))
    make(folder, "0005-elsewhere", exit_status=None, running=True, supervisor={"host": "other", "boot": "x", "pid": 1, "start": 1})
    make(folder, "0006-bench-train", exit_status=None, started_at=None)
    old = make(folder, "0007-bench-train", exit_status=None, started_at=None)
    os.utime(old, (time.time() - 7200,) * 2)
    run(folder, "--keep", 0)
    assert names(folder) == ["0004-live", "0005-elsewhere", "0006-bench-train", "notes"]


def test_links_are_not_followed(folder, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    inside = make(other, "0009-train")
    (folder / "0009-train").symlink_to(inside, target_is_directory=True)
    (folder / "0001-train" / "away").symlink_to(other, target_is_directory=True)
    run(folder, "--keep", 0)
    assert (inside / "trace" / "log").exists() and names(folder) == ["0009-train", "notes"]


def test_a_marker_of_a_stranger_is_only_text(folder):
    make(folder, "0004-\x1b[31mx", command=["\x1b[31mpython", "a\nb"], started_at="nonsense")
    done = run(folder)
    assert "\x1b" not in done.stdout and len(done.stdout.splitlines()) == 5


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        ((), 5, "no run directory in"),
        (("--dry-run",), 2, "--dry-run needs"),
        (("--older-than", "nan"), 2, "--older-than"),
        (("--keep", "-1"), 2, "--keep"),
    ],
)
def test_what_makes_no_sense_is_one_line(tmp_path, monkeypatch, capsys, words, status, said):
    if words:
        make(tmp_path, "0001-train")
    monkeypatch.setattr("sys.argv", ["dynadiag", "runs", str(tmp_path), *words])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == status and said in capsys.readouterr().err


def test_the_run_before_is_the_newest_of_the_same_command(folder, tmp_path_factory):
    now = make(folder, "0010-train", days=1)
    make(folder, "0009-other", days=1.5, command=["python", "other.py"])
    make(folder, "0011-train", days=0.5)
    assert run_before(now) == folder / "0003-train"
    assert run_before(folder / "0001-train") is None and run_before(folder / "notes") is None
    assert run_before(make(folder, "0012-train", started_at=None)) is None
    make(folder, "0004-elsewhere", days=1.2, cwd="/other")
    assert run_before(now) == folder / "0003-train"
