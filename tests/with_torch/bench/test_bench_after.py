"""Before and after a change in one run: same state, and results compared across the change (from a file: `test_bench_end_to_end`)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
BEFORE = """
import torch

def training():
    model = torch.nn.Linear(32, 32)  # not seeded on purpose
    batch = torch.randn(16, 32)

    def step():
        hidden = model(batch)
        torch._dynamo.graph_break()
        return hidden.square().mean()

    return step
"""
AFTER = BEFORE.replace("        torch._dynamo.graph_break()\n", "").replace("model = ", "torch.manual_seed(7)\n    model = ")


def bench(folder, *arguments):
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'cli'}", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "dynadiag", "bench", "--max-time", "1", "--json", *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=1500)
    return done, json.loads(done.stdout) if done.stdout else None


def by_name(items, key):
    return {item[key]: item for item in items}


@pytest.mark.slow
def test_a_fix_is_compared_with_what_was_committed(tmp_path):
    (tmp_path / "program.py").write_text(BEFORE)
    for name in ("user.name", "user.email"):
        subprocess.run(["git", "config", "--global", name, "x"], env={**os.environ, "HOME": str(tmp_path)}, check=True)
    for command in (["init", "-q"], ["add", "program.py"], ["commit", "-qm", "x"]):
        subprocess.run(["git", *command], cwd=tmp_path, env={**os.environ, "HOME": str(tmp_path)}, check=True)
    (tmp_path / "program.py").write_text(AFTER)
    done, document = bench(tmp_path, "--fn", "program.py:training", "--arms", "backend:eager", "--max-rounds", "20", "--git", "HEAD")
    assert document is not None, done.stderr
    assert {item["arm"]: item["status"] for item in document["correctness"]} == dict.fromkeys(
        ("backend:eager", "after:backend:eager"), "PASS"
    )
    arms = by_name(document["arms"], "name")
    assert (arms["backend:eager"]["breaks"], arms["after:backend:eager"]["breaks"]) == (1, 0)
    assert ("backend:eager", "after:backend:eager") in {(item["baseline"], item["arm"]) for item in document["comparisons"]}


def test_what_names_no_other_version_is_one_line(tmp_path):
    (tmp_path / "program.py").write_text(BEFORE)
    for arguments, says in (
        (["--after", "missing.py"], "--after missing.py does not exist"),
        (["--git", "HEAD"], "needs a git repository here"),
        (["--git", "HEAD", "--after", "program.py"], "pass only one"),
        (["--after", "program.py", "--in-process"], "need separate processes"),
    ):
        done, _ = bench(tmp_path, "--fn", "program.py:training", *arguments)
        assert done.returncode == 2 and says in done.stderr.splitlines()[-1], done.stderr
