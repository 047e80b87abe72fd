"""What a killed dynadiag leaves behind (nothing), and a terminal's Ctrl-C and Ctrl-Z, which only the script's process group gets."""

import os
import pty
import select
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from dynadiag import scratch
from dynadiag.process_identity import identity, state_of
from dynadiag.record import guardian, processes
from dynadiag.trace import load

EXPLAIN = [sys.executable, "-m", "dynadiag", "explain", "--no-probe", "--no-pictures", "x.py"]
PATIENCE_S = 120.0


@pytest.fixture(autouse=True)
def in_folder(tmp_path, monkeypatch):
    """In a folder, with signals that end a process: under `nohup` they would be ignored, and children inherit that."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    before = {number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGHUP, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def write(text, name="x.py"):
    Path(name).write_text(textwrap.dedent(text))


def waited_for(happened):
    end = time.monotonic() + PATIENCE_S
    while not happened() and time.monotonic() < end:
        time.sleep(0.05)
    return happened()


class InATerminal:
    """A command in a terminal of its own; what takes too long to come fails the test, and then nothing of it stays."""

    def __init__(self, command):
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            for number in (signal.SIGINT, signal.SIGQUIT):
                signal.signal(number, signal.SIG_DFL)
            os.execv(command[0], command)
        self.said = b""
        self.status = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.status is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.terminal)

    def type(self, keys):
        os.write(self.terminal, keys)

    def wait_for(self, mark):
        """Until it has said this; the next search begins behind it."""
        while mark not in self.said:
            assert self._read(), f"it ended without {mark!r}: {self.said!r}"
        self.said = self.said.partition(mark)[2]

    def end(self):
        """Its exit status, once all that it said is in `said`."""
        while self._read():
            pass
        self.status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.status

    def _read(self):
        assert select.select([self.terminal], [], [], PATIENCE_S)[0], f"nothing more for {PATIENCE_S:g} s after {self.said!r}"
        try:
            piece = os.read(self.terminal, 1 << 12)
        except OSError:
            return False
        self.said += piece
        return bool(piece)


LATE_GUARDIAN = """
    # As on a busy machine: it starts late, is late to join the script's group, and late to look at what came.
    import os, runpy, signal, sys, time
    join, look = os.setpgid, signal.sigwaitinfo
    def late_join(*arguments):
        time.sleep(1.5)
        join(*arguments)
    def late_look(numbers):
        found = look(numbers)
        time.sleep(0.5)
        return found
    os.setpgid, signal.sigwaitinfo = late_join, late_look
    time.sleep(1.5)
    runpy.run_path({main!r}, run_name="__main__")
"""
EXPLAIN_LATE = """
    import runpy, sys
    from pathlib import Path
    from dynadiag.record import guardian
    guardian._MAIN = Path("late_guardian.py").resolve()
    runpy.run_module("dynadiag", run_name="__main__", alter_sys=True)
"""


@pytest.fixture(params=["", "late"])
def explain(request):
    if not request.param:
        return EXPLAIN
    write(LATE_GUARDIAN.format(main=str(guardian._MAIN)), "late_guardian.py")
    write(EXPLAIN_LATE, "explain_late.py")
    return [sys.executable, "explain_late.py", *EXPLAIN[3:]]


def test_a_second_ctrl_c_at_a_terminal_ends_a_script_that_swallows_it(explain):
    write("""
        import time
        while True:
            try:
                print("ready", flush=True)
                time.sleep(6000)
            except KeyboardInterrupt:
                print("swallowed", flush=True)
    """)
    with InATerminal(explain) as program:
        program.wait_for(b"ready")
        program.type(b"\x03")
        program.wait_for(b"swallowed")
        program.wait_for(b"dynadiag: the script continues after Ctrl-C; a second one ends it")
        program.type(b"\x03")
        assert program.end() == 130
        assert b"the user interrupted the script" in program.said
        assert b"a second one" not in program.said


def test_one_ctrl_c_is_the_scripts_own_affair(explain):
    write("""
        try:
            import time
            print("ready", flush=True)
            time.sleep(6000)
        except KeyboardInterrupt:
            print("cleaned up", flush=True)
    """)
    with InATerminal(explain) as program:
        program.wait_for(b"ready")
        program.type(b"\x03")
        assert program.end() == 130
        assert b"cleaned up" in program.said


@pytest.mark.parametrize("body", ["raise SystemExit(1)", "import time; time.sleep(6000)"], ids=["dies", "hangs"])
def test_without_a_guardian_the_program_runs_all_the_same(body, monkeypatch):
    write(body, "broken.py")
    monkeypatch.setattr(guardian, "_MAIN", Path("broken.py").resolve())
    monkeypatch.setattr(guardian, "_PATIENCE_S", 0.1)
    broken = guardian.Guardian()
    broken.keep("A=b")
    broken.settle()
    broken.watch(os.getpgrp(), [])
    assert broken.presses(settled=True) == 0
    broken._lose()


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
    with InATerminal([sys.executable, "shell.py", *EXPLAIN]) as program:
        program.wait_for(b"ready")
        program.type(b"\x1a")
        program.wait_for(b"stopped")
        program.type(b"fg\nhello\n")
        assert program.end() == 0
        assert b"read hello" in program.said
        assert b"ended 4" in program.said


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


def test_the_folder_of_a_command_goes_that_dies_a_while_after_its_pipes(tmp_path, monkeypatch):
    """So does every process: on a busy machine the guardian saw the closed pipe and then a live owner."""
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    write("""
        import os, time
        from dynadiag.record.guardian import guarded
        from dynadiag.scratch import make_scratch
        guardian = guarded()
        make_scratch("parity")
        guardian._child.stdin.close()
        time.sleep(1)
        os._exit(0)
    """)
    assert subprocess.run([sys.executable, "x.py"]).returncode == 0
    assert waited_for(lambda: not list((tmp_path / "tmp").iterdir()))


def test_only_folders_of_dead_processes_of_this_machine_are_deleted(tmp_path, monkeypatch):
    def mounted(*points_and_kinds):
        pairs = zip(points_and_kinds[::2], points_and_kinds[1::2], strict=True)
        lines = [f"36 35 98:0 / {point.replace(' ', chr(92) + '040')} rw,noatime shared:1 - {kind} /dev/root rw" for point, kind in pairs]
        Path("mountinfo").write_text("\n".join(lines))

    monkeypatch.setattr(scratch, "_MOUNTS", Path("mountinfo").resolve())
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    mine = scratch.make_scratch("bench")
    (mine / "file").write_text("")
    boot, namespace, pid, start, rest = mine.name.removeprefix("dynadiag-bench-").split("-", 4)
    dead = tmp_path / f"dynadiag-bench-{boot}-{namespace}-{pid}-{int(start) + 1}-{rest}"
    before_this_boot = tmp_path / f"dynadiag-bench-{'0' * 8}-{namespace}-{pid}-{start}-{rest}"
    before_this_boot.mkdir()
    dead.mkdir()
    (dead / "link").symlink_to(mine)
    kept = [
        mine,
        tmp_path / f"dynadiag-bench-{boot}-{'0' * 8}-{pid}-{int(start) + 1}-{rest}",  # another container
        tmp_path / "dynadiag-bench-mine",
        tmp_path / f"dynadiag-runs-{pid}",
        tmp_path / f"x-{dead.name}",
    ]
    for folder in kept[1:]:
        folder.mkdir()
    link = tmp_path / f"dynadiag-bench-{boot}-{namespace}-{pid}-{int(start) + 2}-{rest}"
    link.symlink_to(mine)
    strange = tmp_path / f"dynadiag-git-{boot}-{namespace}-{pid}-{int(start) + 1}-{rest}"
    strange.mkdir()
    if os.geteuid() == 0:
        os.chown(strange, 12345, 12345)
        kept.append(strange)
    mounted(f"{tmp_path}/with space", "ext4", f"{tmp_path}", "nfs4")
    scratch.sweep()
    assert not dead.exists()
    assert before_this_boot.exists()  # it may be another machine's
    mounted("/", "nfs", str(tmp_path), "ext4")
    scratch.sweep()
    assert not before_this_boot.exists()
    assert all(folder.exists() for folder in (*kept, link, mine / "file"))
    with scratch.scratch("graph") as folder:
        assert folder.stat().st_mode & 0o777 == 0o700
    assert not folder.exists()


def test_a_process_that_is_ending_is_waited_for(monkeypatch):
    """Its environment is gone before it counts as dead: its folder would be taken for that of a live process, and stay."""
    states = iter(["alive", "alive", "alive", "dead", "dead"])
    asked = []
    listed = iter([[os.getpid()], [os.getpid()]])
    monkeypatch.setattr(processes, "_marked", lambda marks: next(listed, []))
    monkeypatch.setattr(processes, "state_of", lambda process: asked.append(process["pid"]) or next(states))
    monkeypatch.setattr(processes.os, "kill", lambda pid, number: None)
    processes.end_orphans(None, [b"MARK=1"], grace_s=60)
    assert asked == [os.getpid()] * 5
