"""The tutorial: its first report is what dynadiag prints, and `check` and `bug` take that run as it says."""

import re
import shutil
from pathlib import Path

import pytest

from tests.command_here import command_here
from tests.recorded_here import recorded_here

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.any_torch
def test_the_tutorial_shows_what_is_printed(tmp_path):
    text = (ROOT / "docs/tutorial.md").read_text()
    shutil.copy(ROOT / "samples/text_classification.py", tmp_path)
    commands = re.findall(r"^\$ dynadiag (.*)$", text, re.MULTILINE)
    # The back end that takes no time shows the same: what is seen here is seen by Dynamo.
    assert commands[0] == "explain text_classification.py --backend aot_eager"
    recorded_here(tmp_path / "text_classification.py", tmp_path / "run", "--backend", "eager")
    explained = command_here("explain", "run", cwd=tmp_path)
    assert explained.returncode == 0, explained.stderr
    shown = re.search(r"^```text\n(.*?)^```", text, re.MULTILINE | re.DOTALL)[1].splitlines()
    assert [line for line in shown if line not in explained.stdout.splitlines()] == []

    checked = next(command for command in commands if command.startswith("check ")).partition(" text_classification")[0]
    assert command_here(*checked.split(), "run", cwd=tmp_path).returncode == 1
    assert "bug dynadiag-runs/latest" in commands
    assert command_here("bug", "run", cwd=tmp_path).returncode == 0
