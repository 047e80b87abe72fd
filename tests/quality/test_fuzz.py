"""Mutated logs, run directories and results: each is read the whole way, none acts, writes elsewhere, or ends in an error of ours."""

import subprocess
import sys
from pathlib import Path

COUNT = 60
SCRIPT = Path(__file__).with_name("fuzz_recordings.py")


def run(*options):
    """In a process of its own: an audit hook stays for good."""
    done = subprocess.run([sys.executable, str(SCRIPT), *options], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    return done.stdout


def test_what_is_forbidden_is_seen():
    assert "went unseen: none" in run("--plant")


def test_mutated_recordings_are_read_and_do_nothing():
    said = run("--count", str(COUNT), "--seed", "20", "--torch")
    assert f"{COUNT} cases, 0 failed" in said
    assert all(f"'{reader}'" in said for reader in ("explain", "graph", "minify", "parity", "bench"))
