"""`dynadiag diff` from its command line: recordings and scripts, exit status, and bad input in one line."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dynadiag.errors import DynadiagError
from dynadiag_cli.app import app
from tests.unit.gate.test_check_command import cut, record
from tests.unit.trace.conftest import LogBuilder
from tests.unit.trace.test_ranks import GUARDS, write
from tests.unit.trace.test_recorded_digest import made_of

SCRIPT = "import sys\nopen(sys.argv[1], 'a').write(f'{__file__} {VERSION} {sys.argv[2:]}\\n')\n"


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """A run with a graph break and one without."""
    monkeypatch.chdir(tmp_path)
    record(tmp_path, tmp_path / "broken")
    record(tmp_path, tmp_path / "cured", broken=False)
    return tmp_path


def diff(*words):
    found = CliRunner().invoke(app, ["diff", *map(str, words)])
    if isinstance(found.exception, DynadiagError):
        return found.exception.exit_code, found.exception.message
    assert found.exception is None or isinstance(found.exception, SystemExit), found.exception
    return found.exit_code, found.stdout


def test_two_ranks_and_where_they_first_differ(tmp_path):
    """No finding differs: the break is at the same statement, and a guard on another size is no finding."""
    write(tmp_path, range(3), r1={"guards": GUARDS.replace("size=[8, 64]", "size=[7, 64]")})
    logs = [tmp_path / f"dedicated_log_torch_trace_rank_{rank}_x.log" for rank in range(3)]
    for log in logs:
        log.with_suffix(".digest").write_bytes(made_of(log))
    status, out = diff(logs[0], logs[1])
    plain = " ".join(out.split())
    assert status == 0 and "note: rank 1 first differs from rank 0: f: 4 guards: TENSOR_MATCH" in plain and "size=[7, 64]" in plain
    assert "the two ranks compiled the same, in the same order" in diff(logs[0], logs[2])[1]
    assert json.loads(diff(logs[0], logs[1], "--format", "json")[1])["ranks"].startswith("rank 1 first differs")


def test_two_runs_and_their_exit_status(runs):
    status, out = diff("broken", "cured")
    assert status == 0 and "\n\nBetter: 1 earlier finding gone or less frequent\n" in out
    assert "  gone GB0059 Failed to trace builtin operator\n       old  train.py:5 in f: print(" in out
    assert diff("cured", "broken")[0] == 1
    assert diff("broken", "broken") == (0, diff("broken", "broken")[1])


@pytest.mark.parametrize(
    ("ended", "how"),
    [({"exit_status": 1}, "ended with exit status 1"), ({"exit_status": 139, "signal": "SIGSEGV"}, "was killed by SIGSEGV")],
)
def test_a_program_that_fails_now_is_never_better(runs, ended, how):
    record(runs, runs / "failed", broken=False, **ended)
    status, out = diff("broken", "failed")
    assert status == 1 and f"\n\nWorse: the new program {how}\n" in out
    assert diff("--format", "json", "broken", "failed")[1].count('"worse": true') == 1
    status, out = diff("failed", "failed")  # and where both fail, it is not known whether anything is better
    assert status == 1 and f" Failed: the new program {how}, and the old one {how} note: " in " ".join(out.split())
    assert diff("failed", "cured")[0] == 0


def test_a_program_that_fails_before_anything_is_compiled(runs):
    (runs / "crashed").mkdir()
    log = LogBuilder().intern("a").artifact("dynadiag_problem", {"kind": "uncaught", "text": "ValueError: no data"})
    log.artifact("dynadiag_exit", {"counters": {}, "calls": 0}).write(runs / "crashed")
    facts = {"format": 1, "dynadiag": "0", "command": ["python", "train.py"], "cwd": str(runs), "exit_status": 1}
    (runs / "crashed" / "dynadiag-run.json").write_text(json.dumps(facts))
    assert diff("broken", "crashed")[0] == 1
    said = "the program ended with exit status 1 (ValueError: no data) before anything was compiled, so nothing was compared"
    assert diff("crashed", "crashed") == (1, said)


def test_a_recording_that_was_cut_between_two_records_is_not_judged(runs):
    record(runs, runs / "cut", broken=False)
    cut(runs / "cut", None)
    status, out = diff("broken", "cut")
    assert status == 2 and "\n\nNot judged: the new run is not complete\n" in out


@pytest.mark.parametrize(
    ("form", "begin"), [("text", "dynadiag diff\nold: cured"), ("md", "# dynadiag diff\n"), ("json", "{"), ("html", "<!doctype html>")]
)
def test_every_format_goes_to_stdout_or_a_file(runs, form, begin):
    status, out = diff("cured", "broken", "--format", form)
    assert status == 1 and out.startswith(begin) and "GB0059" in out
    assert diff("-f", form, "-o", "out.txt", "cured", "broken") == (1, "")
    assert (runs / "out.txt").read_text() == out


def test_nothing_compiled_in_either_is_5(runs):
    for name in ("empty", "nothing"):
        (runs / name).mkdir()
        LogBuilder().intern("a").artifact("dynadiag_exit", {"counters": {}, "calls": 0}).write(runs / name)
    assert diff("empty", "nothing")[0] == 5
    assert diff("broken", "nothing")[0] == 1 or "nothing was compiled in the new run" in diff("broken", "nothing")[1]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["broken"], "diff compares two runs or logs, but got 1"),
        (["broken", "cured", "cured"], "diff compares two runs or logs, but got 3"),
        (
            ["broken", "train.py"],
            "train.py is no run or log; to record a script of two revisions or interpreters use --git",
        ),
        (["-o", "no/out.txt", "broken", "cured"], "cannot write no/out.txt: there is no folder no"),
        (["--git", "HEAD", "nowhere.py"], "no such script: nowhere.py"),
        (["--git", "HEAD", "train.py"], "--git needs a git repository here"),
        (["--old-python", "/no/python", "train.py"], "--old-python: no such interpreter: /no/python"),
        (["broken", "damaged"], "damaged/dynadiag-run.json is damaged, so nothing was compared: record the program again"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(runs, monkeypatch, words, said):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(runs.parent))
    (runs / "train.py").write_text("")
    record(runs, runs / "damaged")
    (runs / "damaged/dynadiag-run.json").write_text('{"form')
    status, message = diff(*words)
    assert status == 2 and said in message and "\n" not in message


def git(folder, *arguments):
    subprocess.run(["git", "-c", "user.name=x", "-c", "user.email=x@example.org", *arguments], cwd=folder, check=True, capture_output=True)


def test_git_records_the_revision_and_then_the_working_tree(tmp_path, monkeypatch):
    project = tmp_path / "project"
    (project / "src").mkdir(parents=True)
    (project / "src" / "train.py").write_text(SCRIPT.replace("{VERSION}", "old"))
    git(project, "init", "-q")
    git(project, "add", ".")
    git(project, "commit", "-qm", "x")
    (project / "src" / "train.py").write_text(SCRIPT.replace("{VERSION}", "new"))
    monkeypatch.chdir(project)
    paths = os.pathsep.join(str(Path(__file__).parents[3] / part) for part in (".", "cli"))
    command = [sys.executable, "-m", "dynadiag", "diff", "--git", "HEAD", "--", "src/train.py", str(tmp_path / "said"), "--lr", "3"]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": paths})
    assert done.returncode == 5 and "nothing was compiled in either run" in done.stderr, done.stderr
    old, new = (tmp_path / "said").read_text().splitlines()
    assert old.endswith("/src/train.py old ['--lr', '3']") and not old.startswith(str(project))
    assert new.removeprefix(f"{project}/") == "src/train.py new ['--lr', '3']"
    names = sorted(path.name for path in (project / "dynadiag-runs").iterdir() if path.is_dir() and not path.is_symlink())
    assert names == ["0001-old-train", "0002-new-train"]
    facts = json.loads((project / "dynadiag-runs/0001-old-train/dynadiag-run.json").read_text())
    assert not Path(facts["cwd"]).exists()  # the copy of the revision is gone
