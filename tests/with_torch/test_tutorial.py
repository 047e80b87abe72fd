"""The tutorial: its first report is what dynadiag prints, and `check` and `bug` take that run as it says."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.any_torch
def test_the_tutorial_shows_what_is_printed(tmp_path):
    text = (ROOT / "docs/tutorial.md").read_text()
    shutil.copy(ROOT / "samples/text_classification.py", tmp_path)
    commands = re.findall(r"^\$ dynadiag (.*)$", text, re.MULTILINE)
    explained = dynadiag(tmp_path, commands[0])
    assert explained.returncode == 0, explained.stderr
    shown = re.search(r"^```text\n(.*?)^```", text, re.MULTILINE | re.DOTALL)[1].splitlines()
    assert [line for line in shown if line not in explained.stderr.splitlines()] == []

    checked = next(command for command in commands if command.startswith("check ")).partition(" text_classification")[0]
    assert dynadiag(tmp_path, f"{checked} dynadiag-runs/latest").returncode == 1
    assert dynadiag(tmp_path, next(command for command in commands if command.startswith("bug "))).returncode == 0


def dynadiag(folder, command):
    return subprocess.run([sys.executable, "-m", "dynadiag", *command.split()], cwd=folder, capture_output=True, text=True)
