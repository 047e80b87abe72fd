"""However it is started and however it ends: a script under `explain` prints, sees and gives what it does under plain Python. No torch."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

PLAIN = f"'{sys.executable}'"
OURS = f"'{sys.executable}' -m dynadiag explain --no-probe --no-pictures"
# What a script can see of the way in which it was started. (SIGCONT and the like are told by the masks.)
LOOK = """
import os, signal, sys
numbers = sorted(signal.valid_signals())
seen = [(number, str(signal.getsignal(number))) for number in numbers]
seen += [line.strip() for line in open("/proc/self/status") if line.startswith(("SigBlk", "SigIgn", "SigCgt"))]
seen += [[number for number in range(10) if os.path.exists(f"/proc/self/fd/{number}")], sys.stdin is None, sys.stdout is None]
seen += [sys.argv, "DYNADIAG_OWNER" in os.environ, sys.flags.safe_path, sys.path]
with open("seen", "w") as file:
    file.write("\\n".join(map(str, seen)))
print("out")
sys.exit(3)
"""
WAYS = {
    "in the background": (LOOK, "{run} x.py & wait $!"),
    "nohup and ignored signals": (LOOK, "trap '' INT QUIT TSTP CHLD; nohup {run} x.py"),
    "from cron": (LOOK, "setsid -w env -i PYTHONPATH={root} PATH=/usr/bin:/bin {run} x.py </dev/null"),
    "no stdout": (LOOK, "{run} x.py >&-"),
    "no stdin": (LOOK, "{run} x.py <&-"),
    "no stderr": (LOOK, "{run} x.py 2>&-"),
    "none of the three": (LOOK, "{run} x.py <&- >&- 2>&-"),
    "PYTHONSAFEPATH and arguments like ours": (LOOK, "PYTHONSAFEPATH=1 {run} x.py -- --out foo --cost -m x - $'a\\nb\\xff'"),
    "a name that is no UTF-8": (LOOK, "cp x.py $'a \\n\\xffb.py'; {run} $'a \\n\\xffb.py'"),
    "from stdin": (LOOK, "cat x.py | {run} - a"),
    "a folder": ("print(__name__)", "mkdir d; cp x.py d/__main__.py; {run} d"),
    "a pipe that closes": ("for number in range(100000): print(number)", "set -o pipefail; {run} x.py | head -1"),
    "a full stdout": ("print('a')", "{run} x.py >/dev/full"),
    "a full stderr": ("import sys; sys.exit(5)", "{run} x.py 2>/dev/full"),
    "os._exit with everything closed": ("import os; os.closerange(0, 65536); os._exit(3)", "{run} x.py"),
    "execv": (
        "import os, sys\nif sys.argv[1:]: sys.exit(print('again') or 4)\nos.execv(sys.executable, [sys.executable, 'x.py', '1'])",
        "{run} x.py",
    ),
    "a daemon outlives it": (
        "import os, time\nif os.fork() == 0:\n os.setsid()\n if os.fork() == 0:\n"
        "  while not os.path.exists('ended'): time.sleep(.05)\n  open('daemon', 'w').close()\n os._exit(0)\nos.wait()",
        "{run} x.py; status=$?; touch ended; while [ ! -e daemon ]; do sleep .1; done; exit $status",
    ),
    "a folder deleted before": ("print('ran')", "cp x.py y.py; mkdir gone; cd gone; rmdir ../gone; {run} $OLDPWD/y.py"),
    "a folder deleted meanwhile": (
        "import os, shutil\nhere = os.getcwd()\nos.chdir('/')\nshutil.rmtree(here)\nprint('ran')",
        "mkdir gone; cp x.py gone; cd gone; {run} x.py",
    ),
    "a TMPDIR that cannot be written": ("print('ran')", "TMPDIR=/proc {run} x.py"),
    "files of no size": ("import sys; print('ran'); sys.exit(3)", "ulimit -f 0; {run} x.py"),
    "a killed group": ("import os; os.killpg(os.getpgrp(), 9)", "setsid -w {run} x.py; exit $(( $? > 128 ? 128 : $? ))"),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_script_is_as_without_us(way, tmp_path, monkeypatch):
    monkeypatch.delenv("DYNADIAG_OWNER", raising=False)  # set in this process where an earlier test recorded
    program, shell = WAYS[way]
    found = []
    for run in (PLAIN, OURS):
        folder = tmp_path / str(len(found)) / "x"
        folder.mkdir(parents=True)
        (folder / "x.py").write_text(program)
        done = subprocess.run(
            ["bash", "-c", shell.replace("{run}", run).replace("{root}", str(Path(__file__).parents[3]))],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        seen = (folder / "seen").read_text().replace(str(folder), "") if (folder / "seen").exists() else None
        found.append((done.returncode, done.stdout, seen))
        assert re.search(rb'File ".*/(dynadiag|dynadiag_cli)/', done.stderr) is None, "no traceback of ours"
        assert b"None" not in done.stderr, "no word of ours is missing"
    assert found[0] == found[1]
    assert program is not LOOK or found[0][2] is not None


def test_a_hang_up_gives_its_own_status():
    """A terminal that is gone: its processes get SIGHUP, and whoever still writes to it gets an error."""
    import pty

    Path("x.py").write_text("import time\nprint('ready', flush=True)\ntime.sleep(6000)")
    pid, terminal = pty.fork()
    if pid == 0:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it is ignored
        os.execv(sys.executable, [sys.executable, "-m", "dynadiag", "explain", "--no-probe", "--no-pictures", "x.py"])
    read_until(terminal, b"ready")
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 129


def read_until(terminal, mark):
    text = b""
    while mark not in text:
        text += os.read(terminal, 1 << 12)
    return text


@pytest.fixture(autouse=True)
def in_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
