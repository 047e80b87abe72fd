"""What `dynadiag mcp` leaves running: nothing, however a call or the server ends."""

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.unit.mcp.wire import serving, wait_until

pytestmark = pytest.mark.any_torch
# It has a child of its own, which is in a session of its own; a deaf one listens to no signal that can be ignored, nor does its child.
STAYS = """
import os, signal, subprocess, sys, time
from pathlib import Path
if "deaf" in sys.argv:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
if "child" not in sys.argv:
    subprocess.Popen([sys.executable, *sys.argv, "child"], start_new_session=True)
Path(f"{sys.argv[1]}.{os.getpid()}").touch()
time.sleep(120)
"""
ENDED_S = 25
pytest.importorskip("mcp")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "stays.py").write_text(STAYS)
    return tmp_path


def pids(folder, name="pid"):
    return [int(path.suffix[1:]) for path in folder.glob(f"{name}.*")]


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def started(wire, folder, name="pid", *words):
    number = wire.start_call("explain", {"target": "stays.py", "args": [name, *words]})
    assert wait_until(lambda: len(pids(folder, name)) == 2, 60)
    return number


def all_ended(folder, name="pid"):
    return wait_until(lambda: not any(map(is_running, pids(folder, name))), ENDED_S)


@pytest.mark.parametrize(
    ("number", "words"), [(signal.SIGTERM, []), (signal.SIGINT, []), (signal.SIGHUP, []), (signal.SIGKILL, []), (signal.SIGKILL, ["deaf"])]
)
def test_nothing_outlives_a_server_that_is_ended(folder, number, words):
    with serving(folder) as wire:
        started(wire, folder, "pid", *words)
        wire.process.send_signal(number)
        wire.process.wait(120)
        assert all_ended(folder)


@pytest.mark.skipif(sys.platform != "linux", reason="needs PR_SET_PDEATHSIG")
def test_nothing_outlives_a_server_whose_guardian_was_killed_first(folder):
    with serving(folder) as wire:
        started(wire, folder)
        children = Path(f"/proc/{wire.process.pid}/task/{wire.process.pid}/children").read_text().split()
        (guardian,) = [int(pid) for pid in children if b"guardian_main.py" in Path(f"/proc/{pid}/cmdline").read_bytes()]
        os.kill(guardian, signal.SIGKILL)
        wire.process.kill()
        wire.process.wait(120)
        assert all_ended(folder)


def test_nothing_outlives_a_client_that_goes_away(folder):
    with serving(folder) as wire:
        started(wire, folder)
        wire.process.stdin.close()
        assert all_ended(folder)
        wire.process.wait(120)


def test_a_call_that_is_cancelled_ends_its_program_and_no_other(folder):
    with serving(folder) as wire:
        first, second = started(wire, folder, "first"), started(wire, folder, "second")
        wire.send("notifications/cancelled", {"requestId": first, "reason": "enough"}, wants_answer=False)
        assert all_ended(folder, "first")
        assert all(map(is_running, pids(folder, "second")))
        refused, text = wire.call("rule", codes=["DM05"])
        assert not refused and text.startswith("DM05")
        wire.send("notifications/cancelled", {"requestId": second}, wants_answer=False)
        assert all_ended(folder, "second")


def test_a_program_that_leaves_something_behind_or_prints_much_is_answered(folder):
    """What stays holds the streams open; a gigabyte of output is not kept."""
    behind = "import subprocess\nsubprocess.Popen(['sleep', '100'], start_new_session=True, env={})\nprint('x' * (200 << 20))\n"
    (folder / "much.py").write_text(behind)
    with serving(folder) as wire:
        begun = time.monotonic()
        refused, text = wire.call("explain", target="much.py")
        assert not refused, text
        assert time.monotonic() - begun < 80  # what was left behind sleeps 100 s
        peak_kib = int(
            next(line for line in Path(f"/proc/{wire.process.pid}/status").read_text().splitlines() if "VmHWM" in line).split()[1]
        )
        assert peak_kib < 400 << 10


def test_more_calls_than_run_at_once_are_all_answered_and_a_call_without_an_id_runs_nothing(folder):
    (folder / "short.py").write_text("import os, sys, pathlib\npathlib.Path(f'ran.{os.getpid()}').touch()\n")
    with serving(folder) as wire:
        wire.send("tools/call", {"name": "explain", "arguments": {"target": "short.py"}}, wants_answer=False)
        numbers = [wire.start_call("explain", {"target": "short.py"}) for _ in range(5)]
        said = [wire.answer(number)["result"] for number in numbers]
        assert not any(one.get("isError") for one in said)
        folders = {one["structuredContent"]["run"]["directory"] for one in said}
        assert len(folders) == 5 and len(list(folder.glob("ran.*"))) == 5
