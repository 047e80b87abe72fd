"""`dynadiag check` from its command line: what it reads and writes, its exit status, and bad input in one line."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dynadiag.errors import DynadiagError
from dynadiag_cli.app import app
from tests.unit.trace.conftest import LogBuilder
from tests.unit.trace.test_recorded_digest import made_of

BREAK = (
    "Graph break in user code at {0}:5\nGraph Break Reason: Encountered graph break when attempting to trace CALL: a function call:\n\n"
    "Failed to trace builtin operator\n  Explanation: Dynamo does not know how to trace builtin operator `print`\n"
    "  Hint: Avoid calling builtin `print`.\n\n  Developer debug context: builtin print [<class 'X'>] False\n\n"
    " For more details about this graph break, please visit: https://meta-pytorch.github.io/compile-graph-break-site/gb/gb0059.html\n"
    'User code traceback:\n  File "{0}", line 9, in <module>\n    f(x)\n  File "{0}", line 5, in f\n    print("x")\n'
)


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder with `train.py` and a run of it that has one graph break in line 5."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text('import torch\n\ndef f(x):\n    x = x + 1\n    print("x")\n    return x\n')
    record(tmp_path, tmp_path / "run")
    return tmp_path


def record(project, folder, *, broken=True, text=None, environment=None, **facts):
    script = str(project / "train.py")
    log = LogBuilder().intern(script)
    if environment is not None:
        log.artifact("dynadiag_environment", environment)
    log.start(0)
    if broken:
        log.artifact("dynamo_graph_break_reason", BREAK.format(script), frame=0)
    log.artifact(
        "dynadiag_function",
        {"file": script, "line": 3, "name": "f", "text": text or 'def f(x):\n    x = x + 1\n    print("x")\n    return x'},
    )
    log.metrics(0, attempt=1 if broken else 0, co_filename=script)
    log.artifact("dynadiag_exit", {"counters": {}, "device": "cpu", "calls": 1})
    folder.mkdir(exist_ok=True)
    log.write(folder)
    known = {"format": 1, "dynadiag": "0", "command": ["python", "train.py"], "cwd": str(project), "exit_status": 0}
    (folder / "dynadiag-run.json").write_text(json.dumps({**known, **facts}))


def cut(folder, count):
    """The log of a recorded run without its last bytes, or without its last two records, as the digest beside it tells."""
    (log,) = folder.glob("*.log")
    data = log.read_bytes()
    log.with_suffix(".digest").write_bytes(made_of(log))
    log.write_bytes(data[:-count] if count else data[: data.rindex(b"\nV", 0, data.rindex(b"\nV")) + 1])


def locked_baseline(folder):
    """A baseline that nobody may write."""
    (folder / "dynadiag-baseline.json").write_text('{"dynadiag_baseline": 1, "programs": {}}')
    (folder / "dynadiag-baseline.json").chmod(0o444)


def check(*words):
    found = CliRunner().invoke(app, ["check", *map(str, words)])
    if isinstance(found.exception, DynadiagError):
        return found.exception.exit_code, found.stdout, found.exception.message
    assert found.exception is None or isinstance(found.exception, SystemExit), found.exception
    return found.exit_code, found.stdout, found.stderr


def test_a_break_fails_and_is_one_line(project):
    status, out, err = check("run")
    assert status == 1
    assert out.startswith("train.py:5:1: GB0059 Graph break: ") and out.count("\n") == 1
    assert err == "dynadiag: check: 1 failed\n"
    assert check("-q", "--max-breaks", 1, "run") == (0, "", "")
    record(project, project / "cured", broken=False)
    assert check("cured")[:2] == (0, "")


def test_settings_are_read_and_the_command_line_goes_first(project):
    (project / "pyproject.toml").write_text("[tool.dynadiag.check]\nmax-breaks = 1\n")
    assert check("run")[0] == 0
    assert check("--max-breaks", 0, "run")[0] == 1
    (project / "pyproject.toml").write_text("[tool.dynadiag.check]\nmax-brakes = 1\n")
    status, _, said = check("run")
    assert status == 2 and said.endswith("has no setting 'max-brakes'; did you mean 'max-breaks'?")


def test_the_ratchet(project):
    assert check("--update-baseline", "run")[0] == 0
    text = (project / "dynadiag-baseline.json").read_text()
    assert '"GB0059"' in text
    assert check("--baseline", "dynadiag-baseline.json", "run")[0] == 0
    record(project, project / "cured", broken=False)
    status, _, err = check("--baseline", "dynadiag-baseline.json", "cured")
    assert status == 0 and "1 problem of the baseline no longer there (GB0059 in f)" in err
    assert (project / "dynadiag-baseline.json").read_text() == text
    assert check("--update-baseline", "cured")[0] == 0
    assert check("--update-baseline", "run")[0] == 1  # what was cured may not come back
    assert "GB0059" not in (project / "dynadiag-baseline.json").read_text()


@pytest.mark.parametrize("ended", [{"exit_status": 1}, {"exit_status": None, "timed_out": True, "signal": "SIGTERM"}])
def test_a_program_that_did_not_run_to_its_end_takes_nothing_out_of_the_baseline(project, ended):
    check("--update-baseline", "run")
    text = (project / "dynadiag-baseline.json").read_text()
    record(project, project / "cut", broken=False, **ended)
    _, _, err = check("--update-baseline", "cut")
    assert (project / "dynadiag-baseline.json").read_text() == text
    assert "the program did not run to its end, so the baseline stays as it is" in err


def test_a_program_that_failed_is_not_added_to_the_baseline(project):
    """It would be listed with what it came to, and all else would be new for ever."""
    record(project, project / "failed", broken=False, exit_status=1)
    status, _, err = check("--update-baseline", "failed")
    assert status == 1 and "it is not added to the baseline" in err
    assert not (project / "dynadiag-baseline.json").exists()


@pytest.mark.parametrize("kept", ["run", "logs", "log", "digest"])
def test_a_recording_that_was_cut_between_two_compilations_is_not_judged(project, kept):
    """Its log has whole records and no end. `digest`: the program ended by os._exit, and what says how long the log is is there."""
    record(project, project / "run", broken=False, environment={"pid": 7, "argv": ["train.py"]})
    (log,) = (project / "run").glob("*.log")
    data = log.read_bytes()
    log.write_bytes(data[: data.rindex(b"\nV") + 1])
    if kept == "digest":
        log.with_suffix(".digest").write_bytes(made_of(log))
        status, _, err = check("--max-breaks", 0, "run")
        assert status == 0 and "ended without a normal exit" in err
        return
    if kept != "run":
        (project / "run" / "dynadiag-run.json").unlink()
    status, out, message = check("--max-breaks", 0, log if kept == "log" else "run")
    assert (status, out) == (2, "") and "the end of" in message and "may be missing: it has no end record" in message


def test_another_program_in_the_baseline_stays(project):
    check("--update-baseline", "run")
    record(project, project / "other", broken=False, command=["python", "-m", "pkg.eval"])
    assert check("--update-baseline", "other")[0] == 0
    assert list(json.loads((project / "dynadiag-baseline.json").read_text())["programs"]) == ["-m pkg.eval", "train.py"]


def test_baselines_of_many_programs_are_updated_at_once(project):
    """As the jobs of a CI do that share a folder: each in a process of its own, all waiting for the same moment."""
    names = [f"pkg.part{number}" for number in range(6)]
    for name in names:
        record(project, project / name, command=["python", "-m", name])
    begin, ready = os.pipe(), os.pipe()
    children = []
    for name in names:
        if (child := os.fork()) == 0:
            status = 1
            try:
                os.write(ready[1], b".")
                os.read(begin[0], 1)
                status = check("-q", "--update-baseline", "--baseline", "link/one.json", name)[0]
            finally:
                os._exit(status)
        children.append(child)
    (project / "real").mkdir()
    (project / "link").symlink_to("real")
    for _ in names:
        os.read(ready[0], 1)
    os.write(begin[1], b"123456")
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 6
    found = json.loads((project / "real" / "one.json").read_text())["programs"]
    assert list(found) == [f"-m pkg.part{number}" for number in range(6)] and all(one["problems"] for one in found.values())
    assert os.listdir(project / "real") == ["one.json"]


def test_a_program_keeps_its_baseline_wherever_it_is_started(project):
    """Its log says what its files are called in the project; a baseline of before, where that hung on the folder, is taken over."""
    names = {"project": {str(project.parent): ""}, "pid": 1}
    record(project, project / "run", environment=names)
    record(project, project / "elsewhere", environment=names, cwd="/elsewhere", command=["python", f"/{project}/./train.py"])
    assert check("--update-baseline", "run")[0] == 0
    file = project / "dynadiag-baseline.json"
    assert list(json.loads(file.read_text())["programs"]) == [f"{project.name}/train.py"]
    assert check("--baseline", file, "elsewhere")[0] == 0
    old = json.loads(file.read_text())
    (known,) = old["programs"].values()
    known |= {
        "fingerprints": 1,
        "problems": [known["problems"][0] | {"file": "train.py", "fingerprint": "0" * 5 + "-00000000" + "-000000" * 3}],
    }
    file.write_text(json.dumps(old | {"programs": {"train.py": known}}))
    status, _, err = check("--baseline", file, "run")
    assert status == 0 and "--update-baseline rewrites it" in err
    assert check("--update-baseline", "run")[0] == 0
    assert list(json.loads(file.read_text())["programs"]) == [f"{project.name}/train.py"]


@pytest.mark.parametrize("rows", [["x = x + 1", 'print("x")  # {}'], ["# {}", 'print("x")']])
def test_a_comment_counts_as_it_was_recorded(project, rows):
    text = "\n    ".join(["def f(x):", *rows, "return x"]).format("dynadiag: allow[GB0059] once a run")
    record(project, project / "run", text=text)
    assert check("run") == (0, "", "dynadiag: check: passed, 1 allowed by a comment\n")


@pytest.mark.parametrize(
    ("spoil", "words", "said"),
    [
        (lambda at: (at / "b.json").write_text("{"), ["--baseline", "b.json", "run"], "the baseline b.json is not JSON (line 1)"),
        (lambda at: None, ["--baseline", "b.json", "run"], "there is no baseline b.json: create it with --update-baseline"),
        (lambda at: None, ["--update-baseline", "--baseline", "no/b.json", "run"], "there is no folder no"),
        (lambda at: None, ["-o", "no/out.txt", "run"], "cannot write no/out.txt: there is no folder no"),
        (lambda at: None, ["-o", ".", "run"], "cannot write .: it is a folder"),
        (lambda at: (at / "out.txt").touch(0o444), ["-o", "out.txt", "run"], "cannot write out.txt: it is read-only"),
        (lambda at: locked_baseline(at), ["--update-baseline", "run"], "dynadiag-baseline.json cannot be written: it is read-only"),
        (lambda at: (at / "run/dynadiag-run.json").write_text('{"form'), ["run"], "dynadiag-run.json is damaged, so nothing was checked"),
        (lambda at: record(at, at / "run", exit_status=None, stopped=["the disk was full"]), ["run"], "the recording is not complete"),
        (lambda at: cut(at / "run", 20), ["--max-breaks", "9", "run"], "is not complete, so nothing was checked: the last record of"),
        (lambda at: cut(at / "run", None), ["--max-breaks", "9", "run"], "is not complete, so nothing was checked: the end of"),
        (lambda at: None, ["run", "extra"], "no such file or folder: extra"),
        (lambda at: None, ["nowhere.py"], "nowhere.py"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line_and_exit_2(project, spoil, words, said):
    spoil(project)
    before = {path: path.read_bytes() for path in project.rglob("*") if path.is_file()}
    status, out, message = check(*words)
    assert (status, out) == (2, "") and said in message and "\n" not in message
    assert {path: path.read_bytes() for path in project.rglob("*") if path.is_file()} == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_report_that_may_not_be_written_is_one_line(project):
    (project / "locked").mkdir(mode=0o500)
    status, _, message = check("-o", "locked/out.txt", "run")
    assert status == 2 and message.startswith("cannot write locked/out.txt")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_verdict_that_could_not_be_written_is_none(project):
    """It fails and is not readable: exit status 2, not 1."""
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-m", "dynadiag", "check", "-q", "run"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (2, "dynadiag: error: cannot write to stdout: No space left on device\n")


def test_a_full_disk_is_one_line_and_the_baseline_stays(project, monkeypatch):
    check("--update-baseline", "run")
    text = (project / "dynadiag-baseline.json").read_text()
    record(project, project / "cured", broken=False)

    def full(*arguments, **keywords):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    status, _, message = check("--update-baseline", "cured")
    assert (status, message) == (2, "the baseline dynadiag-baseline.json cannot be written: No space left on device")
    assert (project / "dynadiag-baseline.json").read_text() == text


def test_a_run_of_a_stranger_opens_no_file_that_it_names(project, monkeypatch):
    """The run is not sealed as this user's, so only what was recorded counts."""
    (project / "train.py").write_text("\n\n\n\nprint('x')  # dynadiag: allow[GB0059] not read\n")
    assert check("run")[0] == 1


def test_a_log_in_which_nothing_was_compiled_is_5(project):
    (project / "empty").mkdir()
    LogBuilder().intern("a").artifact("dynadiag_exit", {"counters": {}, "calls": 0}).write(project / "empty")
    assert check("empty")[0] == 5


@pytest.mark.parametrize("form", ["concise", "json", "jsonl", "junit", "github", "sarif", "md"])
def test_every_format_goes_to_stdout_or_a_file(project, form):
    status, out, _ = check("-f", form, "run")
    assert status == 1 and "GB0059" in out
    assert check("-f", form, "-o", "out.txt", "run")[1] == ""
    assert (project / "out.txt").read_text() == out


def test_it_is_a_program(project):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(str(Path(__file__).parents[3] / part) for part in (".", "cli"))}
    done = subprocess.run([sys.executable, "-m", "dynadiag", "check", "run"], capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stdout.split(" ")[0]) == (1, "train.py:5:1:")
