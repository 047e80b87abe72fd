"""One client for processes that speak JSON lines: what they print does not spoil it, and how they end is told apart."""

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from dynadiag.children.worker import Worker, WorkerEndedError, end_of, last_line_of

ECHO = """
import json, sys
from dynadiag.json_lines import Speaker
speaker = Speaker()
speaker.take_stdout()
print("printed by others")
for line in sys.stdin:
    number = json.loads(line)["number"]
    if number < 0:
        sys.exit("last words")
    speaker.say({"twice": 2 * number})
"""
ON_DESCRIPTORS = """
import json, os, sys
reading, writing = os.fdopen(int(sys.argv[1])), int(sys.argv[2])
print("stdin", repr(sys.stdin.read()), flush=True)
for line in reading:
    os.write(writing, b"no message\\n[1]\\n" + json.dumps({"got": json.loads(line)}).encode() + b"\\n")
"""
SLOW = "import time; time.sleep(600)"
PARENT = """
import json, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]])
print(json.dumps({"pid": child.pid}), flush=True)
child.wait()
"""


@pytest.fixture
def start(tmp_path):
    started = []

    def start(command, **how):
        with (tmp_path / "log").open("wb") as log:
            started.append(Worker(command, log=log, environment=os.environ, **how))
        return started[-1]

    yield start
    for worker in started:
        worker.close(0.0)


def python(source, *arguments):
    return [sys.executable, "-c", source, *map(str, arguments)]


def test_each_question_gets_its_answer_and_the_end_is_told(start, tmp_path):
    worker = start(python(ECHO))
    assert [worker.ask({"number": number}) for number in (1, 2)] == [{"twice": 2}, {"twice": 4}]
    with pytest.raises(WorkerEndedError):
        worker.ask({"number": -1})
    assert worker.wait() == 1 and worker.has_ended
    with pytest.raises(WorkerEndedError):
        worker.tell({"number": 3})
    assert last_line_of(tmp_path / "log") == "last words"
    assert "printed by others" in end_of(tmp_path / "log")


def test_a_process_that_is_not_asked_any_more_leaves_by_itself(start):
    worker = start(python(ECHO))
    worker.ask({"number": 1})
    worker.close()
    assert worker.wait() == 0


def test_a_user_program_keeps_its_own_streams(start, tmp_path):
    worker = start(lambda reading, writing: python(ON_DESCRIPTORS, reading, writing), alone_in="session")
    assert worker.ask({"number": 1}) == {"got": {"number": 1}}  # lines that are no messages are skipped
    assert end_of(tmp_path / "log") == "stdin ''\n"
    assert os.getsid(worker.pid) == worker.pid


def test_one_that_only_tells_is_heard_to_its_end(start):
    told = start(python("for number in range(3): print('{\"number\": %d}' % number)"), is_asked=False)
    assert list(told.messages()) == [{"number": 0}, {"number": 1}, {"number": 2}]
    assert told.wait() == 0


def test_nothing_in_time_is_no_end(start):
    worker = start(python(SLOW), is_asked=False)
    assert worker.hear(0.05) is None and worker.wait(0.05) is None and not worker.has_ended
    worker.kill()
    assert worker.wait() == -signal.SIGKILL


def test_what_it_started_ends_with_one_that_is_alone_in_its_group(start):
    worker = start(python(PARENT, SLOW), is_asked=False, alone_in="group")
    child = worker.hear()["pid"]
    worker.kill()
    end = time.monotonic() + 120
    while is_running(child) and time.monotonic() < end:
        time.sleep(0.02)
    assert not is_running(child)


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_what_cannot_be_started_leaves_no_descriptor_open(tmp_path):
    before = len(os.listdir("/proc/self/fd"))
    for command in (["/nowhere/python"], lambda reading, writing: ["/nowhere/python"]):
        with (tmp_path / "log").open("wb") as log, pytest.raises(OSError, match="nowhere"):
            Worker(command, log=log, environment={})
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_log_that_is_not_there_has_no_last_line(tmp_path):
    assert last_line_of(tmp_path / "missing") == end_of(tmp_path / "missing") == ""
