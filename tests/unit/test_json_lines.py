"""Messages between processes: whole, in order, and not spoiled by what others print."""

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dynadiag.json_lines import LineReader, Speaker, parsed

CHILD = """
import os, sys
from dynadiag.json_lines import Speaker

speaker = Speaker(default=str)
print("before")
speaker.take_stdout()
sys.stdout.write("half a line")
sys.stdout.flush()
os.write(1, b"and half of one from C")
speaker.say({"number": 1, "kind": int})
if os.fork() == 0:
    speaker.say({"from": "the child"})
    os._exit(0)
os.wait()
speaker.say({"number": 2})
"""


def test_what_others_print_does_not_spoil_a_message():
    done = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, check=True)
    first, *messages = done.stdout.splitlines()
    assert first == "before"
    assert [parsed(line) for line in messages] == [{"number": 1, "kind": "<class 'int'>"}, {"number": 2}]
    assert done.stderr.startswith("half a lineand half of one from C")


@pytest.fixture
def pipe():
    reading, writing = os.pipe()
    yield reading, writing
    for number in (reading, writing):
        with contextlib.suppress(OSError):
            os.close(number)


def test_lines_come_whole_and_in_time(pipe):
    reader = LineReader(pipe[0])
    os.write(pipe[1], b"one\ntwo\nthr")
    assert [reader.line(0.0), reader.line(None), reader.line(0.0)] == [b"one", b"two", None]
    os.write(pipe[1], b"ee\n")
    assert reader.line(5.0) == b"three"
    os.close(pipe[1])
    with pytest.raises(EOFError):
        reader.line(None)


def test_a_message_to_nobody_is_no_error(pipe):
    os.close(pipe[0])
    speaker = Speaker(pipe[1])
    speaker.say({"a": 1})
    speaker.say({"a": 2})


@pytest.mark.parametrize("line", [b"", b"text", b"[1]", b"\xff", b"3", b"[" * 100_000])
def test_a_line_that_is_no_message_is_none(line):
    assert parsed(line) is None


def test_a_process_that_leaves_has_written_what_it_printed_and_run_its_exit_handlers():
    text = "import atexit; from dynadiag.json_lines import leave; atexit.register(print, 'handled'); print('said', end=' '); leave(3)"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert (done.returncode, done.stdout, done.stderr) == (3, "said handled\n", "")
