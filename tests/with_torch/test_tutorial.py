"""The tutorial: its first report is what dynadiag prints, `check` and `bug` take that run as it says, and `bench` compares."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

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
    explained = dynadiag(tmp_path, "explain run")
    assert explained.returncode == 0, explained.stderr
    shown = re.search(r"^```text\n(.*?)^```", text, re.MULTILINE | re.DOTALL)[1].splitlines()
    assert [line for line in shown if line not in explained.stdout.splitlines()] == []

    checked = next(command for command in commands if command.startswith("check ")).partition(" text_classification")[0]
    assert dynadiag(tmp_path, f"{checked} run").returncode == 1
    assert "bug dynadiag-runs/latest" in commands
    assert dynadiag(tmp_path, "bug run").returncode == 0

    # As it stands there, but with this back end, and few rounds: which arm is faster is not the point.
    bench = next(command for command in commands if command.startswith("bench "))
    benched = dynadiag(tmp_path, f"{bench} --max-time 1 --max-rounds 20 --json -- --backend eager --samples 48")
    assert benched.returncode in (0, 1), benched.stderr
    document = json.loads(benched.stdout)
    assert {arm["name"]: arm["status"] for arm in document["arms"]} == {"eager": "ok", "default": "ok"}
    assert {one["status"] for one in document["correctness"]} == {"PASS"}
    assert [(arm["graphs"], arm["breaks"]) for arm in document["arms"]] == [(None, None), (1, 1)]  # as `explain` counts them


def dynadiag(folder, command):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run([sys.executable, "-m", "dynadiag", *command.split()], cwd=folder, env=environment, capture_output=True, text=True)
