"""What a killed dynadiag leaves behind (nothing), and a terminal's Ctrl-C and Ctrl-Z, which only the script's process group gets."""

import os
import pty
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from dynadiag import scratch
from dynadiag.process_identity import identity, state_of
from dynadiag.trace import load

EXPLAIN = [sys.executable, "-m", "dynadiag", "explain", "--no-probe", "--no-pictures", "x.py"]
PATIENCE_S = 600.0


@pytest.fixture(autouse=True)
def in_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))


def write(text, name="x.py"):
    Path(name).write_text(textwrap.dedent(text))


def waited_for(happened):
    end = time.monotonic() + PATIENCE_S
    while not happened() and time.monotonic() < end:
        time.sleep(0.05)
    return happened()


def in_a_terminal(command):
    pid, terminal = pty.fork()
    if pid == 0:
        for number in (signal.SIGINT, signal.SIGQUIT):
            signal.signal(number, signal.SIG_DFL)
        os.execv(command[0], command)
    return pid, terminal


def read_until(terminal, mark):
    text = b""
    while mark not in text:
        text += os.read(terminal, 1 << 12)
    return text


def read_to_the_end(terminal):
    text = b""
    while True:
        try:
            piece = os.read(terminal, 1 << 12)
        except OSError:
            return text
        if not piece:
            return text
        text += piece


def test_a_second_ctrl_c_at_a_terminal_ends_a_script_that_swallows_it():
    write("""
        import time
        while True:
            try:
                print("ready", flush=True)
                time.sleep(6000)
            except KeyboardInterrupt:
                print("swallowed", flush=True)
    """)
    pid, terminal = in_a_terminal(EXPLAIN)
    read_until(terminal, b"ready")
    os.write(terminal, b"\x03")
    read_until(terminal, b"swallowed")
    os.write(terminal, b"\x03")
    said = read_to_the_end(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 130
    assert b"the user interrupted the script" in said


def test_one_ctrl_c_is_the_scripts_own_affair():
    write("""
        import time
        try:
            print("ready", flush=True)
            time.sleep(6000)
        except KeyboardInterrupt:
            time.sleep(2)
            print("cleaned up", flush=True)
    """)
    pid, terminal = in_a_terminal(EXPLAIN)
    read_until(terminal, b"ready")
    os.write(terminal, b"\x03")
    assert b"cleaned up" in read_to_the_end(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 130


SHELL = """
    import os, signal, sys
    # A shell with jobs: the command in a group of its own that gets the terminal; it is told when it stops, and goes on in the foreground.
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    job = os.fork()
    if job == 0:
        os.setpgid(0, 0)
        os.tcsetpgrp(0, os.getpid())
        signal.signal(signal.SIGTTOU, signal.SIG_DFL)
        os.execv(sys.argv[1], sys.argv[1:])
    while True:
        _, status = os.waitpid(job, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            break
        os.tcsetpgrp(0, os.getpgrp())
        print("stopped", flush=True)
        input()
        os.tcsetpgrp(0, job)
        os.killpg(job, signal.SIGCONT)
    os.tcsetpgrp(0, os.getpgrp())
    print("ended", os.waitstatus_to_exitcode(status), flush=True)
"""


def test_ctrl_z_stops_the_job_and_fg_goes_on_with_it():
    write("""
        import sys
        print("ready", flush=True)
        print("read", input(), flush=True)
        sys.exit(4)
    """)
    write(SHELL, "shell.py")
    pid, terminal = in_a_terminal([sys.executable, "shell.py", *EXPLAIN])
    read_until(terminal, b"ready")
    os.write(terminal, b"\x1a")
    read_until(terminal, b"stopped")
    os.write(terminal, b"fg\nhello\n")
    said = read_to_the_end(terminal)
    assert b"read hello" in said
    assert b"ended 4" in said
    os.waitpid(pid, 0)


def test_a_script_that_stops_itself_does_not_stop_us():
    write("""
        import os, signal, subprocess, sys
        again = f"import os, signal, time; time.sleep(1); os.kill({os.getpid()}, signal.SIGCONT)"
        subprocess.Popen([sys.executable, "-c", again])
        os.kill(os.getpid(), signal.SIGTSTP)
        sys.exit(5)
    """)
    assert subprocess.run(EXPLAIN).returncode == 5


def alive(process):
    return state_of(process) == "alive"


@pytest.mark.parametrize("number", [signal.SIGKILL])
def test_a_killed_dynadiag_takes_the_program_with_it_and_the_run_says_so(number):
    write("""
        import os, subprocess, sys, time
        other = [sys.executable, "-c", "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(6000)"]
        children = [subprocess.Popen(other, start_new_session=apart) for apart in (False, True)]
        with open("pids.part", "w") as file:
            file.write(" ".join(str(pid) for pid in [os.getpid(), *(child.pid for child in children)]))
        os.rename("pids.part", "pids")
        time.sleep(6000)
    """)
    parent = subprocess.Popen(EXPLAIN, start_new_session=True)
    assert waited_for(Path("pids").exists)
    theirs = [identity(int(pid)) for pid in Path("pids").read_text().split()]
    assert load("dynadiag-runs/latest").info.running
    parent.send_signal(number)
    parent.wait()
    assert waited_for(lambda: not any(map(alive, theirs)))
    info = load("dynadiag-runs/latest").info
    assert (info.running, info.killed, info.exit_status) == (False, True, None)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_children_and_folders_of_a_killed_command_go(number, tmp_path, monkeypatch):
    """As `parity`, `bench` and `minify` have them, in sessions of their own."""
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    write("""
        import subprocess, sys, time
        from dynadiag.record.guardian import guarded
        from dynadiag.scratch import make_scratch
        guarded()
        made = "import time; from dynadiag.scratch import make_scratch; make_scratch('child'); print(flush=True); time.sleep(6000)"
        child = subprocess.Popen([sys.executable, "-c", made], start_new_session=True, stdout=subprocess.PIPE)
        child.stdout.readline()
        make_scratch("parity")
        print(child.pid, flush=True)
        time.sleep(6000)
    """)
    parent = subprocess.Popen([sys.executable, "x.py"], stdout=subprocess.PIPE, text=True, start_new_session=True)
    child = identity(int(parent.stdout.readline()))
    assert len(list((tmp_path / "tmp").iterdir())) == 2
    parent.send_signal(number)
    parent.communicate()
    assert waited_for(lambda: not alive(child))
    assert waited_for(lambda: not list((tmp_path / "tmp").iterdir()))


def test_only_folders_of_dead_processes_of_this_machine_are_deleted(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    mine = scratch.make_scratch("bench")
    (mine / "file").write_text("")
    here, pid, start, rest = mine.name.removeprefix("dynadiag-bench-").split("-", 3)
    dead = tmp_path / f"dynadiag-bench-{here}-{pid}-{int(start) + 1}-{rest}"
    dead.mkdir()
    (dead / "link").symlink_to(mine)
    kept = [
        mine,
        tmp_path / f"dynadiag-bench-{'0' * len(here)}-{pid}-{int(start) + 1}-{rest}",  # another machine
        tmp_path / "dynadiag-bench-mine",
        tmp_path / f"dynadiag-runs-{pid}",
        tmp_path / f"x-{dead.name}",
    ]
    for folder in kept[1:]:
        folder.mkdir()
    link = tmp_path / f"dynadiag-bench-{here}-{pid}-{int(start) + 2}-{rest}"
    link.symlink_to(mine)
    strange = tmp_path / f"dynadiag-git-{here}-{pid}-{int(start) + 1}-{rest}"
    strange.mkdir()
    if os.geteuid() == 0:
        os.chown(strange, 12345, 12345)
        kept.append(strange)
    scratch.sweep()
    assert not dead.exists()
    assert all(folder.exists() for folder in (*kept, link, mine / "file"))
    with scratch.scratch("graph") as folder:
        assert folder.stat().st_mode & 0o777 == 0o700
    assert not folder.exists()
