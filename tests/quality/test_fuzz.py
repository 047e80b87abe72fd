"""Mutated logs and run directories: each is read the whole way, none acts, writes elsewhere, or ends in an error of ours."""

import subprocess
import sys
from pathlib import Path

COUNT = 150


def test_mutated_recordings_are_read_and_do_nothing():
    """In a process of its own: an audit hook stays for good."""
    script = Path(__file__).with_name("fuzz_recordings.py")
    done = subprocess.run([sys.executable, str(script), "--count", str(COUNT), "--seed", "20"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    assert f"{COUNT} cases, 0 failed" in done.stdout
