"""A real program before and after a fix that made another break: what `diff --git` tells of it, and what `check` says of both runs."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command_here import command_here

# Reads reports, and git: which torch wrote the log does not matter.
pytestmark = pytest.mark.any_torch
ROOT = Path(__file__).parents[3]
BEFORE = """import torch


def helper(x):
    return x.relu()


def step(x):
    y = helper(x * 2)
    print("loss", y.sum())
    return y + 1


compiled = torch.compile(step, backend="eager")
for _ in range(2):
    compiled(torch.ones(3))
"""
AFTER = BEFORE.replace('    print("loss", y.sum())\n', "    y = y.sin()\n").replace(
    "    return x.relu()", "    if x.sum() > 0:  # dynadiag: allow[GB0170] a planted branch\n        x = x + 1\n    return x.relu()"
)


def dynadiag(folder, *words):
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'cli'}", "OMP_NUM_THREADS": "1"}
    return subprocess.run([sys.executable, "-m", "dynadiag", *words], cwd=folder, env=environment, capture_output=True, text=True)


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """Both versions recorded once, by `diff --git`, which also wrote what it found."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "train.py").write_text(BEFORE)
    for words in (["init", "-q"], ["add", "train.py"], ["commit", "-qm", "x"]):
        subprocess.run(["git", "-c", "user.name=x", "-c", "user.email=x@example.org", *words], cwd=folder, check=True)
    (folder / "train.py").write_text("# moved\n\n" + AFTER)
    done = dynadiag(folder, "diff", "--git", "HEAD", "--format", "json", "-o", "diff.json", "train.py")
    assert done.returncode == 1, done.stderr
    return folder


def test_diff_names_the_break_that_came_and_the_one_that_is_gone(project):
    told = json.loads((project / "diff.json").read_text())
    assert [(one["kind"], one["what"], one["code"], (one["new"] or one["old"])["function"]) for one in told["changes"]] == [
        ("break", "gained", "GB0170", "helper"),
        ("break", "lost", "GB0059", "step"),
    ]
    assert told["doubts"] == []
    operators = {name for one in told["graphs"] for name in one["came"]}
    assert "sin" in operators and all(one["function"].endswith("(train.py)") for one in told["graphs"])


def test_the_gate_fails_before_and_a_comment_lets_the_other_through(project):
    before = command_here("check", "dynadiag-runs/0001-old-train", cwd=project)
    assert before.returncode == 1 and before.stdout.startswith("train.py:10:1: GB0059 "), before.stderr
    after = command_here("check", "--max-breaks", "0", "--max-fallbacks", "1", "dynadiag-runs/0002-new-train", cwd=project)
    assert (after.returncode, after.stdout) == (0, ""), after.stderr
    assert (
        after.stderr
        == "dynadiag: check: passed, 1 allowed by a comment (0 graph break sites, at most 0; 0 fallbacks to eager, at most 1)\n"
    )
