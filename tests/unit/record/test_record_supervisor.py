"""The supervisor: exit statuses, signals, time limits, orphans, directories it cannot write. No torch anywhere."""

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

import dynadiag
from dynadiag.errors import OutputError, UnreadableInputError, UsageError
from dynadiag.record import RecordOptions, Target, record, stability, supervisor
from dynadiag.record.target import command_of

FAR = 86_400.0
# Whoever runs the tests in the background of a shell has them ignore Ctrl-C.
DRIVER = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from dynadiag.record import RecordOptions, Target, record
sys.exit(record(Target("script", ("program.py", *sys.argv[1:])), RecordOptions()).exit_status)
"""
PATIENCE_S = 600.0


@pytest.fixture(autouse=True)
def in_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def script(text):
    path = Path("program.py")
    path.write_text(textwrap.dedent(text))
    return Target("script", (str(path), "one", "two"))


def run(text, **options):
    return record(script(text), RecordOptions(**options))


def over_once_there(monkeypatch, name):
    """The supervisor's clock jumps by a day once the file is there: the program is ended when it has come so far, on any machine."""
    looks = []

    def monotonic():
        looks.append(1)
        return time.monotonic() + (FAR if len(looks) > 1 and Path(name).exists() else 0.0)

    monkeypatch.setattr(supervisor, "time", SimpleNamespace(monotonic=monotonic, strftime=time.strftime, gmtime=time.gmtime))


def waited_for(happened):
    """Whether it happened: a process that was killed is gone when the machine comes to it."""
    end = time.monotonic() + PATIENCE_S
    while not happened() and time.monotonic() < end:
        time.sleep(0.05)
    return happened()


def facts(result):
    return json.loads((result.directory / "dynadiag-run.json").read_text())


@pytest.mark.parametrize(
    ("ending", "status", "name"),
    [
        ("pass", 0, None),
        ("sys.exit(7)", 7, None),
        ("raise ValueError(1)", 1, None),
        ("os._exit(9)", 9, None),
        ("os.kill(os.getpid(), 9)", 137, "SIGKILL"),
        ("import ctypes; ctypes.string_at(0)", 139, "SIGSEGV"),
        ("os.kill(os.getpid(), 15)", 143, "SIGTERM"),
    ],
)
def test_the_exit_status_is_the_scripts_own(ending, status, name, capfd):
    result = run(f"import os, sys\nprint(sys.argv[1:], __name__)\nsys.stdout.flush()\n{ending}")
    assert (result.exit_status, result.signal) == (status, name)
    assert capfd.readouterr().out == "['one', 'two'] __main__\n"
    assert (facts(result)["exit_status"], facts(result)["signal"], facts(result)["running"]) == (status, name, False)


def test_runs_are_numbered_and_latest_leads_to_the_newest():
    first, second = run("pass"), run("pass")
    assert [result.directory.name for result in (first, second)] == ["0001-program", "0002-program"]
    assert Path("dynadiag-runs/latest").resolve() == second.directory
    assert Path("dynadiag-runs/.gitignore").read_text() == "*\n"
    assert facts(second)["command"][1:] == ["program.py", "one", "two"]


def test_modules_and_command_lines_run_too(capfd):
    Path("package").mkdir()
    Path("package/__main__.py").write_text("import sys; print(sys.argv[1:])")
    assert record(Target("module", ("package", "a")), RecordOptions()).exit_status == 0
    assert record(Target("script", ("package", "b")), RecordOptions()).exit_status == 0
    assert record(Target("command", (sys.executable, "-m", "package", "c")), RecordOptions()).exit_status == 0
    assert capfd.readouterr().out == "['a']\n['b']\n['c']\n"


def test_a_hanging_script_is_ended_with_its_whole_group_and_sessions_of_its_own(monkeypatch):
    over_once_there(monkeypatch, "children")
    result = run(
        """
        import os, subprocess, sys, time
        hang = [sys.executable, "-c", "import signal, time; signal.signal(15, signal.SIG_IGN); print(flush=True); time.sleep(6000)"]
        children = [subprocess.Popen(hang, start_new_session=apart, stdout=subprocess.PIPE) for apart in (False, True)]
        for child in children:
            child.stdout.readline()
        with open("unfinished", "w") as file:
            file.write(" ".join(str(child.pid) for child in children))
        os.rename("unfinished", "children")
        time.sleep(6000)
        """,
        timeout_s=PATIENCE_S,
    )
    assert (result.exit_status, result.timed_out) == (124, True)
    assert facts(result)["timed_out"] is True
    assert waited_for(lambda: not any(alive(int(pid)) for pid in Path("children").read_text().split()))


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("handled", [False, True])
def test_ctrl_c_reaches_the_script_and_leaves_no_orphan(handled):
    Path("program.py").write_text(
        textwrap.dedent(f"""
        import subprocess, sys, time
        child = subprocess.Popen([sys.executable, "-c", "import signal, time; signal.signal(2, signal.SIG_IGN); time.sleep(6000)"])
        with open("children", "w") as file:
            file.write(str(child.pid))
        try:
            print("ready", flush=True)
            time.sleep(6000)
        except KeyboardInterrupt:
            open("interrupted", "w").close()
            if not {handled}:
                raise
        """)
    )
    with subprocess.Popen([sys.executable, "-c", DRIVER], stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True) as parent:
        assert parent.stdout.readline() == b"ready\n"
        parent.send_signal(signal.SIGINT)
        parent.communicate(timeout=PATIENCE_S)
    assert parent.returncode == 130
    assert Path("interrupted").exists()
    assert waited_for(lambda: not alive(int(Path("children").read_text())))
    assert json.loads(Path("dynadiag-runs/latest/dynadiag-run.json").read_text())["interrupted"] is True


def test_a_second_ctrl_c_ends_a_script_that_ignores_the_first():
    Path("program.py").write_text(
        textwrap.dedent("""
        import os, signal, time
        signal.signal(2, lambda *_: os.write(1, b"ignored\\n"))
        os.write(1, b"ready\\n")
        time.sleep(6000)
        """)
    )
    with subprocess.Popen([sys.executable, "-c", DRIVER], stdout=subprocess.PIPE, start_new_session=True) as parent:
        assert parent.stdout.readline() == b"ready\n"
        parent.send_signal(signal.SIGINT)
        assert parent.stdout.readline() == b"ignored\n"
        parent.send_signal(signal.SIGINT)
        parent.communicate(timeout=PATIENCE_S)
    assert parent.returncode == 130


def test_other_signals_are_passed_on():
    target = script("import signal, sys, time\nsignal.signal(15, lambda *_: sys.exit(21))\nopen('ready', 'w').close()\ntime.sleep(6000)")
    threading.Thread(target=send_when_ready, args=(signal.SIGTERM,), daemon=True).start()
    assert record(target, RecordOptions()).exit_status == 21


def send_when_ready(number):
    while not Path("ready").exists():
        time.sleep(0.05)
    os.kill(os.getpid(), number)


def test_endless_training_ends_when_nothing_new_compiles(monkeypatch):
    ticks = []

    def monotonic():
        """Stands still while the program compiles; then ten seconds go by between two looks."""
        ticks.append(Path("compiled").exists())
        return 10.0 * sum(ticks)

    monkeypatch.setattr(stability, "time", SimpleNamespace(monotonic=monotonic))
    result = run(
        """
        import json, os, time
        directory = json.loads(os.environ["DYNADIAG_RECORD"])["directory"]
        log = open(directory + "/dedicated_log_torch_trace_1.log", "w")
        for _ in range(3):
            log.write('V x] {"dynamo_start": {}}\\n')
            log.flush()
            time.sleep(0.5)
        open("compiled", "w").close()
        while True:
            log.write('V x] {"artifact": {}}\\n')
            log.flush()
            time.sleep(0.1)
        """,
        stop_when_stable_s=1.0,
    )
    assert (result.exit_status, result.stopped_stable, result.timed_out) == (0, True, False)
    assert (result.directory / "dedicated_log_torch_trace_1.log").read_text().count("dynamo_start") == 3


def test_a_directory_that_cannot_be_written_gives_one_warning_and_the_script_runs(capfd):
    Path("file").write_text("")
    result = run("import os, sys; print('DYNADIAG_RECORD' in os.environ); sys.exit(6)", out=Path("file/below"))
    captured = capfd.readouterr()
    assert (result.directory, result.exit_status, captured.out) == (None, 6, "False\n")
    assert captured.err.count("dynadiag:") == 1
    assert "runs unrecorded, without a report" in result.warnings[0]


def test_it_says_where_it_records_before_the_program_runs_where_asked(capfd):
    run("import sys; print('first', file=sys.stderr)", out=Path("my run"), announce=True)
    assert capfd.readouterr().err == "dynadiag: recording to 'my run'/\nfirst\n"
    run("import sys; print('first', file=sys.stderr)", out=Path("other"))
    assert capfd.readouterr().err == "first\n"


def test_observe_says_in_its_own_words_that_a_directory_is_in_use():
    """Who calls it has no command line."""
    for name in ("my-run", "theirs"):
        Path(name).mkdir()
    with dynadiag.observe("my-run"):
        pass
    Path("theirs", "notes.txt").touch()
    said = "my-run is not empty: pass another directory, or use force=True to replace an earlier run"
    with pytest.raises(UnreadableInputError, match=f"^{said}$"), dynadiag.observe("my-run"):
        pytest.fail("the block was entered")
    with dynadiag.observe("my-run", force=True):
        pass
    with pytest.raises(OutputError, match="force=True does not replace it"), dynadiag.observe("theirs", force=True):
        pytest.fail("the block was entered")
    assert Path("theirs", "notes.txt").exists()


def test_only_an_earlier_run_is_replaced():
    out = Path("out")
    first = run("pass", out=out)
    (first.directory / "old").write_text("")
    with pytest.raises(UnreadableInputError, match="not empty"):
        run("pass", out=out)
    assert run("pass", out=out, force=True).exit_status == 0
    assert not (out / "old").exists()
    Path("precious").mkdir()
    Path("precious/thesis.tex").write_text("")
    with pytest.raises(OutputError, match="not created by dynadiag"):
        run("pass", out=Path("precious"), force=True)
    assert Path("precious/thesis.tex").exists()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("missing.py", None, "no such script"),
        ("/dev/zero", None, "it is a device"),
        ("data.csv", b"a;b c;d\n1 2 3\n", "is not a Python script: line 1"),
        ("image.py", b"\x89PNG\0\0", "is not a Python script"),
        ("broken.py", b"def f(:\n", "is not a Python script: line 1: invalid syntax"),
        ("deep.py", b"\xff\xfe", "is not a Python script"),
    ],
)
def test_what_is_no_python_is_refused_before_anything_starts(name, content, message):
    if content is not None:
        Path(name).write_bytes(content)
    with pytest.raises(UnreadableInputError, match=message) as caught:
        record(Target("script", (name,)), RecordOptions())
    assert caught.value.exit_code == 2
    assert not Path("dynadiag-runs").exists()


def test_a_notebook_is_run_by_nbclient_where_that_is_beside_python_and_refused_where_it_is_not():
    Path("cells.ipynb").write_text('{"cells": [], "nbformat": 4}')
    Path("bin").mkdir()
    Path("bin/python").symlink_to(sys.executable)
    with pytest.raises(UnreadableInputError, match="is a notebook: write %load_ext dynadiag in its first cell") as caught:
        command_of(Target("script", ("cells.ipynb",)), "bin/python")
    assert caught.value.exit_code == 2
    Path("bin/jupyter-execute").touch()
    assert command_of(Target("script", ("cells.ipynb", "--allow-errors")), "bin/python") == [
        "bin/python",
        "bin/jupyter-execute",
        "cells.ipynb",
        "--allow-errors",
    ]
    with pytest.raises(UnreadableInputError, match="no such script: none.ipynb"):
        command_of(Target("script", ("none.ipynb",)), "bin/python")


@pytest.mark.parametrize("python", [None, "python3"])
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nosuchmodule", "cannot run -m nosuchmodule: No module named 'nosuchmodule'"),
        ("empty.nosuch", "No module named 'empty.nosuch'"),
        ("empty", "'empty' is a package without a __main__.py"),
        ("plain.sub", "'plain' is not a package: there is no module 'plain.sub'"),
        ("plain.py", "-m takes a module's name, not a path: plain.py"),
    ],
)
def test_a_module_that_cannot_be_found_is_refused_before_anything_starts(name, message, python):
    Path("empty").mkdir()
    Path("empty/__init__.py").write_text("")
    Path("plain.py").write_text("open('imported', 'w')")
    with pytest.raises(UnreadableInputError, match=re.escape(message)):
        record(Target("module", (name,)), RecordOptions(python=python))
    assert not Path("dynadiag-runs").exists()
    assert not Path("imported").exists()


def test_a_module_whose_package_only_code_can_find_is_left_to_python(capfd):
    Path("far/away").mkdir(parents=True)
    Path("far/away/inner.py").write_text("print('found')")
    Path("outer").mkdir()
    Path("outer/__init__.py").write_text("__path__.append('far/away')")
    Path("broken").mkdir()
    Path("broken/__init__.py").write_text("import no_such_thing")
    Path("broken/inner.py").write_text("")
    Path("space").mkdir()
    Path("space/inner.py").write_text("print('in a namespace')")
    assert record(Target("module", ("outer.inner",)), RecordOptions()).exit_status == 0
    assert record(Target("module", ("space.inner",)), RecordOptions()).exit_status == 0
    assert record(Target("module", ("broken.inner",)), RecordOptions()).exit_status == 1
    captured = capfd.readouterr()
    assert captured.out == "found\nin a namespace\n"
    assert "no_such_thing" in captured.err


def test_what_python_accepts_is_accepted(capfd):
    Path("latin.py").write_bytes(b"# -*- coding: latin-1 -*-\nprint('caf\xe9' == 'caf\\xe9')\n")
    Path("noextension").write_text("print(1)")
    subprocess.run([sys.executable, "-m", "zipapp", "-o", "app.pyz", "-m", "m:f", str(zip_source())], check=True)
    Path("-dash.py").write_text("import sys; print(sys.argv[0])")
    for name in ("latin.py", "noextension", "app.pyz", "-dash.py"):
        assert record(Target("script", (name,)), RecordOptions()).exit_status == 0
    assert record(Target("script", ("noextension",)), RecordOptions(python="python3")).exit_status == 0
    assert capfd.readouterr().out == "True\n1\nzip\n-dash.py\n1\n"


def zip_source():
    Path("source").mkdir()
    Path("source/m.py").write_text("def f(): print('zip')")
    return Path("source")


def test_wrong_usage():
    for target, options in (
        (Target("script", ()), {}),
        (Target("command", ("no-such-program-at-all",)), {}),
        (Target("script", (__file__,)), {"python": "/no/such/python"}),
    ):
        with pytest.raises(UsageError):
            record(target, RecordOptions(**options))


def test_the_users_own_sitecustomize_still_runs_and_the_path_is_as_without_us(capfd, monkeypatch):
    Path("site").mkdir()
    Path("site/sitecustomize.py").write_text("import sys; sys.users_own = True")
    monkeypatch.setenv("PYTHONPATH", str(Path("site").absolute()))
    text = "import sys; print(getattr(sys, 'users_own', False), sys.modules['sitecustomize'].__file__, sys.path)"
    plain = subprocess.run([sys.executable, str(script(text).argv[0])], capture_output=True, text=True)
    run(text)
    assert capfd.readouterr().out == plain.stdout
    assert plain.stdout.startswith("True")


def test_ending_one_run_leaves_another_run_and_its_processes_alone(monkeypatch):
    Path("program.py").write_text(
        textwrap.dedent(
            """
            import os, subprocess, sys, time
            child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(6000)"], start_new_session=True)
            with open("pids.tmp" + sys.argv[1], "w") as file:
                file.write(f"{os.getpid()} {child.pid}")
            os.rename("pids.tmp" + sys.argv[1], "pids" + sys.argv[1])
            time.sleep(6000)
            """
        )
    )
    driver = "from dynadiag.record import *; import sys; record(Target('script', ('program.py', 'other')), RecordOptions())"
    other, theirs = subprocess.Popen([sys.executable, "-c", driver], start_new_session=True), []
    try:
        assert waited_for(Path("pidsother").exists)
        theirs = [int(pid) for pid in Path("pidsother").read_text().split()]
        for out in (None, Path("program.py/cannot-be-written")):
            Path("pidsmine").unlink(missing_ok=True)
            over_once_there(monkeypatch, "pidsmine")
            assert record(Target("script", ("program.py", "mine")), RecordOptions(timeout_s=PATIENCE_S, out=out)).timed_out
            script_pid, session_pid = (int(pid) for pid in Path("pidsmine").read_text().split())
            assert waited_for(lambda pid=script_pid: not alive(pid))
            if out is None:
                assert waited_for(lambda pid=session_pid: not alive(pid))
            else:
                assert alive(session_pid), "without a mark in its environment only the group is known to be ours"
            if alive(session_pid):
                os.kill(session_pid, signal.SIGKILL)
            assert [alive(pid) for pid in (other.pid, *theirs)] == [True] * 3
    finally:
        other.send_signal(signal.SIGTERM)
        other.wait()
        for pid in theirs[1:]:
            if alive(pid):
                os.kill(pid, signal.SIGKILL)
    assert json.loads(next(Path("dynadiag-runs").glob("0001-*/dynadiag-run.json")).read_text())["signal"] == "SIGTERM"
